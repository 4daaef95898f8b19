"""A real redis-server that tests may freeze, kill and start anew."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from pathlib import Path

import redis

from whiflash.core.ports import free_ports

START_S = 20.0
MISSING = "redis-server is missing; install the package redis-server"


def has_redis_server() -> bool:
    """Whether the program is there; where not, tests skip with MISSING."""
    return shutil.which("redis-server") is not None


class RedisServer:
    """redis-server on a unix socket and a TCP port of 127.0.0.1; ended by its own process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.port = free_ports(1)[0]
        self.tcp_url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Empty: nothing is kept on disk."""
        program = shutil.which("redis-server")
        assert program is not None, MISSING
        self._process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1",
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
        self.start("--cluster-enabled", "yes", "--cluster-port", str(free_ports(1)[0]))

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
