"""Hints between gateways, through a real Redis that also goes away, hangs and holds rubbish."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whiflash.core.params import GenerationRequest
from whiflash.serving.remote import leases
from whiflash.serving.remote.backend import RemoteBackend
from whiflash.serving.remote.leases import Lease, LeaseBook, Look
from whiflash.serving.remote.placement import request_key
from whiflash.serving.remote.pool import VerifierPool
from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.redis_server import RedisServer

SECRET = b"0123456789abcdef0123456789abcdef"
SESSION, OTHER = b"session", b"other"
HERE, THERE = Lease("127.0.0.1:1", "a"), Lease("127.0.0.1:2", "b")


@pytest.fixture
def server(needs_redis: None, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with other work may be slow."""
    monkeypatch.setattr(leases, "LOOK_S", 10.0)
    monkeypatch.setattr(leases, "TIMEOUT_S", 10.0)


@contextlib.asynccontextmanager
async def books(url: str, count: int = 1, **options: Any) -> Any:
    opened = [LeaseBook(url, SECRET, **options) for _ in range(count)]
    try:
        yield opened
    finally:
        for book in opened:
            book.check_integrity()
            await book.close()


async def told(book: LeaseBook) -> None:
    """All notes are written: the one thread keeps their order."""
    await book.find(OTHER)


def test_one_gateway_tells_the_other(server: RedisServer, patient: None) -> None:
    async def scenario() -> None:
        async with books(server.url, 2) as (one, two):
            assert await two.find(SESSION) is None
            one.note(SESSION, HERE)
            await told(one)
            assert await two.find(SESSION) == HERE
            two.note(SESSION, THERE)
            await told(two)
            assert await one.find(SESSION) == THERE
            assert one.looks == {Look.FOUND: 1, Look.NONE: 1}

    asyncio.run(scenario())


def test_a_key_tells_no_session_and_expires(server: RedisServer, patient: None) -> None:
    async def scenario() -> None:
        async with books(server.url) as [book]:
            book.note(b"run of a customer", HERE)
            await told(book)
            with server.client() as client:
                [key] = client.keys()
                assert b"customer" not in key
                assert b"customer".hex().encode() not in key
                assert 0 < client.pttl(key) <= 1e3 * leases.LEASE_S
            assert len(key) == len(b"dr:lease:") + 32

    asyncio.run(scenario())


def test_another_secret_reads_nothing(server: RedisServer, patient: None) -> None:
    async def scenario() -> None:
        async with books(server.url) as [book]:
            book.note(SESSION, HERE)
            await told(book)
            other = LeaseBook(server.url, SECRET[::-1])
            assert await other.find(SESSION) is None
            await other.close()

    asyncio.run(scenario())


def test_the_same_again_is_not_written_until_half_its_time(
    server: RedisServer, patient: None
) -> None:
    async def scenario() -> None:
        async with books(server.url, lease_s=1.0) as [book]:
            book.note(SESSION, HERE)
            await told(book)
            with server.client() as client:
                [key] = client.keys()
                client.delete(key)
                book.note(SESSION, HERE)
                await told(book)
                assert not client.exists(key)
                await asyncio.sleep(0.6)
                book.note(SESSION, HERE)
                await told(book)
                assert client.exists(key)

    asyncio.run(scenario())


@pytest.mark.parametrize("rubbish", [b"", b"x", b" ", b"\xff\xfe \xff", b"a b c", "list"])
def test_rubbish_is_no_error(server: RedisServer, patient: None, rubbish: Any) -> None:
    async def scenario() -> None:
        async with books(server.url) as [book]:
            book.note(SESSION, HERE)
            await told(book)
            with server.client() as client:
                [key] = client.keys()
                client.delete(key)
                client.lpush(key, "x") if rubbish == "list" else client.set(key, rubbish)
            found = await book.find(SESSION)
            assert found is None or found.address != HERE.address

    asyncio.run(scenario())


def test_a_server_that_is_away_costs_no_wait(server: RedisServer, patient: None) -> None:
    async def scenario() -> None:
        async with books(server.url) as [book]:
            server.stop()
            for _ in range(50):
                assert await book.find(SESSION) is None
                book.note(SESSION, HERE)
            assert book.looks == {Look.FAILED: 50}
            server.start()
            deadline = time.monotonic() + 30
            while await book.find(SESSION) is None:
                assert time.monotonic() < deadline, "it was never asked again"
                book.note(SESSION, HERE)
                await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_a_server_that_hangs_is_asked_three_times(server: RedisServer) -> None:
    """The first looks give up after LOOK_S each; then nobody waits."""

    async def scenario() -> None:
        async with books(server.url) as [book]:
            server.freeze()
            start_s = time.monotonic()
            for _ in range(200):
                assert await book.find(SESSION) is None
            assert time.monotonic() - start_s < 200 * leases.LOOK_S / 4
            server.thaw()

    asyncio.run(scenario())


def test_a_wrong_url_is_refused() -> None:
    with pytest.raises(Exception, match="redis://"):
        LeaseBook("http://127.0.0.1", SECRET)


RUN = GenerationRequest(tuple(range(40)), run_id="run", namespace="someone")


def test_two_gateways_place_a_session_alike(
    server: RedisServer, patient: None, on_cluster: Callable[..., Any]
) -> None:
    """The second by itself would have gone by the hash."""

    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        other = VerifierPool(cluster.directory)
        other.open()
        await other.first(10)
        while len(other.live()) < 2:
            await asyncio.sleep(0.01)
        async with books(server.url, 2) as (one, two):
            by_hash = (await other.choose(RUN, (), 0)).address
            cluster.pool.leases, other.leases = one, two
            moved = await cluster.pool.choose(RUN, (by_hash,), 0)
            assert moved.address != by_hash
            await told(one)
            assert (await other.choose(RUN, (), 0)).address == moved.address
            unnamed = replace(RUN, run_id="")
            await other.choose(unnamed, (), 0)
            assert two.looks == {Look.FOUND: 1}, "a beginning that many share has no lease"
        cluster.pool.leases = other.leases = None
        await other.close()

    on_cluster(scenario, ScriptedBackend(), ScriptedBackend())


def test_a_lease_of_a_verifier_that_was_started_anew_counts_for_nothing(
    server: RedisServer, patient: None, on_cluster: Callable[..., Any]
) -> None:
    async def scenario(backend: RemoteBackend, cluster: Any) -> None:
        async with books(server.url) as [book]:
            by_hash = (await cluster.pool.choose(RUN, (), 0)).address
            cluster.pool.leases = book
            fresh = replace(RUN, prompt_ids=tuple(range(100, 140)))
            [other] = [link.address for link in cluster.pool if link.address != by_hash]
            book.note(request_key(fresh), Lease(other, "before the restart"))
            await told(book)
            assert (await cluster.pool.choose(fresh, (), 0)).address == by_hash
        cluster.pool.leases = None

    on_cluster(scenario, ScriptedBackend(), ScriptedBackend())
