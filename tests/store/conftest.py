"""A real redis-server per test that asks for one, on a socket in the test's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from whiflash.testing.redis_server import RedisServer


@pytest.fixture
def absent_server(needs_redis: None, tmp_path: Path) -> Iterator[RedisServer]:
    """Not started yet."""
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def server(absent_server: RedisServer) -> RedisServer:
    absent_server.start()
    return absent_server


@pytest.fixture
def second_server(needs_redis: None, tmp_path: Path) -> Iterator[RedisServer]:
    """For replication; not started yet."""
    (tmp_path / "second").mkdir()
    server = RedisServer(tmp_path / "second")
    yield server
    server.stop()
