"""Streams of clients: an epoch replaces the one before, and who stays away is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from whiflash.rpc.faults import LinkLostError, MismatchError

Put = Callable[[Any], None]


class Sessions:
    """For one event loop. `forget(client)` is called when a client has had no stream for
    `forget_s` seconds."""

    def __init__(self, forget_s: float, forget: Callable[[str], None]) -> None:
        self._forget_s = forget_s
        self._forget = forget
        self._epochs: dict[str, int] = {}
        self._streams: dict[tuple[str, str], tuple[int, Put]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    @property
    def clients(self) -> tuple[str, ...]:
        """Those that are not forgotten."""
        return tuple(self._epochs)

    @contextmanager
    def stream(self, client: str, epoch: int, kind: str, put: Put) -> Iterator[None]:
        """While one is open. The client's stream of that kind of an earlier epoch is ended.
        Raises MismatchError for an epoch that is over."""
        last = self._epochs.get(client, 0)
        if epoch < last:
            raise MismatchError(
                f"stale epoch {epoch} of {client}: this end has seen epoch {last}; open a new one"
            )
        self._epochs[client] = epoch
        older = self._streams.get((client, kind))
        if older is not None:
            older[1](LinkLostError(f"epoch {older[0]} was replaced by {epoch}"))
        timer = self._timers.pop(client, None)
        if timer is not None:
            timer.cancel()
        mine = (epoch, put)
        self._streams[client, kind] = mine
        try:
            yield
        finally:
            if self._streams.get((client, kind)) is mine:
                del self._streams[client, kind]
            if not any(owner == client for owner, _ in self._streams):
                self._forget_later(client)

    def _forget_later(self, client: str) -> None:
        if client in self._timers:
            self._timers.pop(client).cancel()
        loop = asyncio.get_running_loop()
        self._timers[client] = loop.call_later(self._forget_s, self._forget_now, client)

    def _forget_now(self, client: str) -> None:
        self._timers.pop(client, None)
        self._epochs.pop(client, None)
        self._forget(client)

    def tell(self, kind: str, response: Any) -> None:
        """To all streams of a kind."""
        for (_, own), (_, put) in self._streams.items():
            if own == kind:
                put(response)

    def close(self) -> None:
        """Nobody is forgotten any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
