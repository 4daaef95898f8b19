"""A redis-server for a measurement: on a socket in a folder of its own, nothing kept on disk."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whiflash.core.errors import ConfigError

_START_S, _STOP_S, _POLL_S = 20.0, 10.0, 0.02


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Its socket."""

    socket: Path

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def memory_bytes(self) -> int:
        """What its data take at the moment."""
        import redis

        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            found = client.info("memory")
        return int(found["used_memory_dataset"])


@contextmanager
def redis_server() -> Iterator[RedisAddress | None]:
    """A server that answers; it is ended afterwards. None where the program redis-server or the
    package redis is missing. Raises ConfigError if it does not start."""
    program = shutil.which("redis-server")
    if program is None or not _has_package():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="whiflash-redis-") as folder:
        address = RedisAddress(Path(folder) / "redis.sock")
        process = subprocess.Popen(
            [program, "--port", "0", "--unixsocket", str(address.socket), "--dir", folder,
             "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _await_ready(process, address)
            yield address
        finally:
            process.terminate()
            process.wait(_STOP_S)


def _has_package() -> bool:
    try:
        import redis  # noqa: F401
    except ImportError:
        return False
    return True


def _await_ready(process: subprocess.Popen[bytes], address: RedisAddress) -> None:
    import redis

    ends_s = time.monotonic() + _START_S
    while time.monotonic() < ends_s and process.poll() is None:
        try:
            address.memory_bytes()
        except redis.RedisError:
            time.sleep(_POLL_S)
        else:
            return
    raise ConfigError(f"redis-server did not answer within {_START_S:.0f} s")
