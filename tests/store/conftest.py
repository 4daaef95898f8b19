"""A real redis-server per test that asks for one, on a socket in the test's folder."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

START_S = 20.0


class Server:
    """redis-server on a unix socket and a TCP port of 127.0.0.1; ended by its own process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.port = _free_port()
        self.tcp_url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Empty: nothing is kept on disk."""
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
             "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "",
             "--appendonly", "no", "--logfile", "redis.log", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(redis.RedisError), self.client() as client:
                if client.ping():
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        said = (self.folder / "redis.log").read_text()[-500:]
        raise TimeoutError(f"redis-server did not start: {said}")

    def start_cluster(self) -> None:
        """A node of its own; its bus would take the port + 10000, which may not exist."""
        self.start("--cluster-enabled", "yes", "--cluster-port", str(_free_port()))

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_server(folder: Path) -> Server:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is missing; install the package redis-server")
    return Server(folder)


@pytest.fixture
def absent_server(tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = new_server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def server(absent_server: Server) -> Server:
    absent_server.start()
    return absent_server


@pytest.fixture
def second_server(tmp_path: Path) -> Iterator[Server]:
    """For replication; not started yet."""
    (tmp_path / "second").mkdir()
    server = new_server(tmp_path / "second")
    yield server
    server.stop()
