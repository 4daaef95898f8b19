"""`whiflash serve` as a process of its own, as a user starts it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whiflash.core.errors import ConfigError
from whiflash.core.ports import free_ports

_START_S, _STOP_S, _POLL_S = 300.0, 40.0, 0.25


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where it listens, on 127.0.0.1."""

    http_port: int
    grpc_port: int

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


@contextmanager
def served(model: str) -> Iterator[ServerAddress]:
    """A server that is ready; it is ended afterwards. Raises ConfigError if it does not start."""
    program = Path(sys.executable).with_name("whiflash")
    if not program.is_file():
        raise ConfigError(f"{program} is not there; install whiflash into this environment")
    address = ServerAddress(*free_ports(2))
    arguments = ["serve", "--model", model, "--http-port", str(address.http_port)]
    arguments += ["--grpc-port", str(address.grpc_port), "--log-level", "warning"]
    arguments += ["--store", "memory"]  # every run starts with an empty one
    process = subprocess.Popen([str(program), *arguments], stdout=subprocess.DEVNULL)
    try:
        _await_ready(process, address)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], address: ServerAddress) -> None:
    ends_s = time.monotonic() + _START_S
    while time.monotonic() < ends_s:
        if process.poll() is not None:
            raise ConfigError(f"the server ended with code {process.returncode} before it served")
        try:
            with urllib.request.urlopen(f"{address.http}/ready", timeout=5) as answer:  # noqa: S310
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(_POLL_S)
    raise ConfigError(f"the server was not ready after {_START_S:.0f} s")
