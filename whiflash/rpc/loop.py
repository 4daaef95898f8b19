"""An event loop in a thread of its own, beside an engine that is synchronous. It never calls
torch: a second team of OpenMP workers would slow every forward down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
JOIN_S = 10.0


class RpcLoop:
    """Runs until `close`. Threads may share it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="whiflash-rpc", daemon=True
        )
        self._thread.start()

    def post(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Runs `work` on the loop soon; nothing once it is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work, *arguments)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What `work` returns or raises, done on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        """Idempotent. Links must be closed before."""
        if self._loop.is_closed():
            return
        self.run(_end_all(), JOIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_S)
        self._loop.close()


async def _end_all() -> None:
    """What a transport has left behind: a task that outlives its loop fails at some later time."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=JOIN_S / 2)
    await asyncio.get_running_loop().shutdown_asyncgens()
