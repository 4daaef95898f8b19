"""The toy engine behind a real gRPC server, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from whiflash.client import Client
from whiflash.engine.engine import Engine
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.testing.grpc_server import GrpcTestServer
from whiflash.testing.http_server import write_chat_toy


@pytest.fixture(scope="session")
def toy_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = write_chat_toy(tmp_path_factory.mktemp("toy"))
    with Engine(
        model=str(folder), dtype="float64", memory="64MiB", max_batch=8, max_draft_nodes=8
    ) as engine:
        yield engine


@pytest.fixture(scope="session")
def toy_backend(toy_engine: Engine) -> EmbeddedBackend:
    backend = EmbeddedBackend(toy_engine, "toy")
    backend.warm_up()
    return backend


@pytest.fixture
def server(toy_backend: EmbeddedBackend) -> Iterator[GrpcTestServer]:
    with GrpcTestServer(toy_backend) as running:
        yield running


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Of the server in this process, or of the one that `--grpc` names."""
    target = request.config.getoption("grpc", None)
    target = target or request.getfixturevalue("server").target
    with Client(target, max_retries=2) as connected:
        yield connected


@pytest.fixture
def wait_idle(toy_backend: EmbeddedBackend) -> Callable[[], None]:
    """Waits until the engine holds nothing, and says what if it does not come to that."""

    def wait(limit_s: float = 10.0) -> None:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            load = toy_backend.load()
            if (load.running, load.waiting, load.kv_bytes) == (0, 0, 0):
                return
            time.sleep(0.01)
        raise AssertionError(f"still held: {toy_backend.load()}")

    return wait
