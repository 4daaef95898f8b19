"""The server as a whole, in this process, on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from whiflash.core.errors import ConfigError, EngineClosedError
from whiflash.engine.engine import Engine
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.generation import GenerationService
from whiflash.serving.grpc.server import GrpcServer
from whiflash.serving.listen import address_text, bind, check_free
from whiflash.serving.server import Server
from whiflash.testing.toy import write_toy

Scene = Callable[[Server, GenerationService, int], Awaitable[None]]


def serve(folder: Path, scene: Scene) -> None:
    """Runs a server with the toy and, once it is ready, the scene."""

    async def run(engine: Engine) -> None:
        backend = EmbeddedBackend(engine)
        service = GenerationService(backend)
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with closing(bind("127.0.0.1", 0, "--http-port")) as http_socket:
            server = Server(
                service, backend, http_socket, GrpcServer(service, port=0), 5.0,
                lambda http_port, _: ready.set_result(http_port),
            )  # fmt: skip
            running = asyncio.create_task(server.run())
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            await scene(server, service, ready.result())
            await asyncio.wait_for(running, 30)

    with Engine(model=str(folder), dtype="float64", memory="8MiB") as engine:
        asyncio.run(run(engine))


async def status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))
    return write_toy(tmp_path / "toy")


def test_it_is_ready_when_it_says_so_and_stops_when_told(folder: Path) -> None:
    async def scene(server: Server, service: GenerationService, port: int) -> None:
        assert service.is_ready
        assert await status(port, "/ready") == 200
        server.stop()

    serve(folder, scene)


def test_an_engine_that_dies_ends_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    async def scene(server: Server, service: GenerationService, port: int) -> None:
        assert await status(port, "/health") == 200
        monkeypatch.setattr(service._backend._engine.core, "step", broken)  # type: ignore[attr-defined]

    with pytest.raises(EngineClosedError, match="internal error"):
        serve(folder, scene)


def test_addresses_are_taken_or_told() -> None:
    with closing(bind("127.0.0.1", 0, "--x")) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"in use; choose another port with --x"):
            check_free("127.0.0.1", port, "--x")
    check_free("127.0.0.1", port, "--x")
    with pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid"):
        check_free("no.such.host.invalid", 0, "--x")
    assert address_text("::1", 3) == "[::1]:3"
    assert address_text("127.0.0.1", 3) == "127.0.0.1:3"
