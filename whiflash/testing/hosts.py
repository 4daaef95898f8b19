"""Hosted drafters and routers for tests: in a thread of this process, or in one that can be killed.

As a process: python -m whiflash.testing.hosts drafter|router OPTIONS_JSON; it prints its address.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from whiflash.core.protocols import Drafter, TapDrafter
from whiflash.drafters.dflash import DFlashDrafter
from whiflash.drafters.dflash import load as load_dflash
from whiflash.drafters.eagle3 import Eagle3Options
from whiflash.drafters.eagle3 import load as load_eagle3
from whiflash.models.draft.target_parts import TargetParts
from whiflash.rpc.access import Access
from whiflash.rpc.drafter_link import describe
from whiflash.rpc.drafter_server import DrafterServer, HostedTarget
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.remote_drafter import RemoteTapDrafter
from whiflash.rpc.router_server import RouterServer

WAIT_S = 60.0


class Server(Protocol):
    """Starts and stops on an event loop."""

    @property
    def address(self) -> str: ...

    async def start(self) -> str: ...

    async def stop(self) -> None: ...


class ThreadHost:
    """A server on a loop of its own, in a thread; `make` runs there."""

    def __init__(self, make: Callable[[], Server]) -> None:
        self.loop = RpcLoop()

        async def start() -> Server:
            server = make()
            await server.start()
            return server

        self.server = self.loop.run(start(), WAIT_S)

    @property
    def address(self) -> str:
        return self.server.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.run(self.server.stop(), WAIT_S)
        self.loop.close()


class ProcessHost:
    """A server in a process of its own. `kill` is SIGKILL; `start` brings another one up, on the
    port that the first one had."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self._kind, self._options = kind, options
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> str:
        """Waits until it listens."""
        options = dict(self._options)
        if self.address:
            options["port"] = int(self.address.rpartition(":")[2])
        command = [sys.executable, "-m", "whiflash.testing.hosts", self._kind, json.dumps(options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the host did not start"
        return self.address

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(WAIT_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def toy_drafter(name: str, target_folder: Path, drafter_folder: Path) -> TapDrafter:
    """`eagle3` (a chain) or `dflash` of `testing.toy_drafters`, without the target itself."""
    target = TargetParts.of_folder(target_folder, torch.float64, torch.device("cpu"))
    if name == "dflash":
        return DFlashDrafter(load_dflash(drafter_folder, target))
    options = replace(Eagle3Options.of_tree("chain"), boundaries=(1, 2))
    return load_eagle3(drafter_folder, target, options)


def remote(
    loop: RpcLoop, address: str, local: TapDrafter, access: Access | None = None
) -> RemoteTapDrafter:
    """What stands for the drafter hosted at `address`; `local` fuses."""
    described = loop.run(describe(address, access or Access()), WAIT_S)
    return RemoteTapDrafter(
        local.name, loop, address, described.identity, described, local.fuse, access
    )


def drafter_server(
    make: Callable[[], Drafter], model: str, tokenizer: str, **options: Any
) -> DrafterServer:
    return DrafterServer(make, HostedTarget(model, tokenizer), **options)


def _serve(make: Callable[[], Server]) -> None:
    """Until the parent goes away."""
    asyncio.run(_run(make))


async def _run(make: Callable[[], Server]) -> None:
    server = make()
    await server.start()
    print(server.address, flush=True)  # noqa: T201
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=watch, daemon=True).start()
    await gone.wait()
    await server.stop()


def main(kind: str, options: dict[str, Any]) -> None:
    """The process's whole life."""
    port = options.get("port", 0)
    if kind == "router":
        publish = options.get("publish_outcomes", 256)
        _serve(
            lambda: RouterServer(
                options["policy"], options["model"], port=port, publish_outcomes=publish
            )
        )
        return
    torch.set_num_threads(1)
    folders = Path(options["target"]), Path(options["drafter"])
    _serve(
        lambda: drafter_server(
            lambda: toy_drafter(options["name"], *folders), options["model"],
            options["tokenizer"], port=port,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
