"""Redis absent, slow, killed, full, read-only, restarted empty: the text stays the same, no
request fails, and what this process learns goes on to be used."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.engine.core import EngineCore, EngineLimits
from whiflash.engine.publish import Publisher
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.router import Router
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.exactness import require_same_text, run_planned
from whiflash.testing.plain import plain_answer
from whiflash.testing.requests import RandomRequests
from whiflash.testing.toy import write_toy
from whiflash.trajectories.breaker import Breaker
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.ladder_log import LadderLog
from whiflash.trajectories.log import LogLevel
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redis_log import RedisLog
from whiflash.trajectories.redis_log.server import open_client

TIMEOUT_S = 0.5
LIMITS = EngineLimits(
    memory_bytes=64 << 20, max_batch=4, max_queue=64, prefill_chunk=16, max_draft_nodes=8,
    max_draft_depth=8, draft_window=1024,
)  # fmt: skip


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_target(str(write_toy(tmp_path_factory.mktemp("toy"))), dtype="float64")


class Replica:
    """One process's store and engine, as they are wired for Redis."""

    def __init__(self, url: str, toy: LoadedTarget, max_unconfirmed_s: float = 60.0) -> None:
        self.toy = toy
        self.redis = RedisLog(
            open_client(url, TIMEOUT_S),
            url,
            writing=Breaker(first_pause_s=0.1),
            reading=Breaker(first_pause_s=0.1),
        )
        self.log = LadderLog(self.redis, MemoryLog())
        self.indexes = TrajectoryIndexes(self.log, max_unconfirmed_s=max_unconfirmed_s)
        costs = CostModel(toy.target.verify_curve)
        self.core = EngineCore(
            toy.target,
            toy.tokenizer,
            {"retrieval": RetrievalDrafter(self.indexes)},
            Router(make_policy("static", costs), costs, plain_share=0.0),
            Publisher("toy", self.log, None),
            LIMITS,
        )

    def run(self, seed: int, at_step: int = -1, fault: Callable[[], None] = lambda: None) -> None:
        """Random requests, `fault` coming in the middle; every text must be the plain one."""
        rng = random.Random(seed)
        vocab = self.toy.target.info.vocab_size
        prompts = [tuple(rng.randrange(3, vocab) for _ in range(30)) for _ in range(2)]
        requests = RandomRequests(rng, prompts, vocab, ["e", "ab", "th"])
        planned = [requests.draw() for _ in range(6)]
        steps, step = iter(range(10**6)), self.core.step

        def counted() -> bool:
            if next(steps) == at_step:
                fault()
            return step()

        self.core.step = counted  # type: ignore[method-assign]
        try:
            completions = run_planned(self.core, planned)
        finally:
            self.core.step = step  # type: ignore[method-assign]
        for plan, done in zip(planned, completions, strict=True):
            answers = [
                plain_answer(self.toy.target, self.toy.tokenizer, plan.request, n, plan.seed)
                for n in range(plan.request.params.n)
            ]
            require_same_text(plan, done, answers)
        assert self.core.arms.num_failures == 0

    def teach(self, first: int, run_id: str = "") -> None:
        self.log.append(TrajectoryRecord("local", run_id, np.arange(first, first + 20) % 60))

    def knows(self, num_tokens: int, timeout_s: float = 15.0) -> bool:
        return wait_for(lambda: self.indexes.live("local").num_tokens == num_tokens, timeout_s)

    def reaches(self, level: LogLevel, timeout_s: float = 15.0) -> bool:
        return wait_for(lambda: self.log.status().level is level, timeout_s)

    def close(self) -> None:
        self.core.close()
        self.indexes.close()
        started = time.monotonic()
        self.log.close(1.0)
        assert time.monotonic() - started < 5
        self.indexes.check_integrity()


def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.01)
    return condition()


@pytest.fixture
def open_replica(toy: LoadedTarget) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def make(url: str, **options: Any) -> Replica:
        made.append(Replica(url, toy, **options))
        return made[-1]

    yield make
    for replica in made:
        replica.close()


def test_what_one_replica_learns_another_drafts_also_after_a_restart(
    server: Any, open_replica: Callable[..., Replica]
) -> None:
    """vllm RFC 18037: suffix trees per replica were silos, and cold after a restart."""
    one, other = open_replica(server.url), open_replica(server.url)
    one.run(1)
    assert one.indexes.flush()
    one.indexes.live("local")
    other.indexes.live("local")
    assert one.indexes.flush()
    assert one.indexes.live("local").num_tokens > 0
    assert other.knows(one.indexes.live("local").num_tokens)
    assert other.indexes.ready_shared
    restarted = open_replica(server.url)
    assert restarted.knows(one.indexes.live("local").num_tokens)


def test_redis_absent_and_there_later(
    absent_server: Any, open_replica: Callable[..., Replica]
) -> None:
    replica = open_replica(absent_server.url)
    replica.run(2)
    assert replica.reaches(LogLevel.LOCAL)
    index = replica.indexes.live("local")
    assert wait_for(lambda: index.num_tokens > 0, 10)
    assert not replica.indexes.ready_shared
    absent_server.start()
    assert replica.reaches(LogLevel.SHARED)
    assert replica.indexes.flush()
    assert replica.indexes.ready_shared
    known = index.num_tokens
    assert open_replica(absent_server.url).knows(known), "what waited is written later"
    assert replica.log.num_dropped == 0


def test_redis_killed_in_the_middle_of_a_run(
    server: Any, open_replica: Callable[..., Replica]
) -> None:
    replica = open_replica(server.url)
    replica.run(3, at_step=5, fault=server.stop)
    assert replica.reaches(LogLevel.LOCAL)
    before = replica.indexes.live("local").num_tokens
    replica.teach(10)
    assert replica.knows(before + 20)
    replica.run(4)
    assert "Error" in replica.log.status().last_error


def test_redis_slow(server: Any, open_replica: Callable[..., Replica]) -> None:
    """It keeps its connections and answers nothing: worse than gone."""
    replica = open_replica(server.url)
    replica.run(5)
    started = time.monotonic()
    replica.run(6, at_step=3, fault=server.freeze)
    assert time.monotonic() - started < 60
    slowest = 0.0
    for first in range(50):
        begun = time.perf_counter()
        replica.teach(first)
        slowest = max(slowest, time.perf_counter() - begun)
    assert slowest < TIMEOUT_S / 2, "appending waited for the server"
    assert replica.reaches(LogLevel.LOCAL)
    server.thaw()
    assert replica.reaches(LogLevel.SHARED)
    assert replica.log.flush(15)


def test_redis_full(server: Any, open_replica: Callable[..., Replica]) -> None:
    replica = open_replica(server.url)
    replica.run(7)
    assert replica.indexes.flush()

    def fill() -> None:
        with server.client() as client:
            client.config_set("maxmemory", 1)

    replica.run(8, at_step=3, fault=fill)
    before = replica.indexes.live("local").num_tokens
    replica.teach(10)
    assert wait_for(lambda: not replica.log.status().is_writable, 15)
    assert "maxmemory" in replica.log.status().last_error
    assert replica.log.status().level is LogLevel.SHARED, "a full server can still be read"
    assert wait_for(lambda: replica.indexes.live("local").num_tokens > before, 10)
    with server.client() as client:
        client.config_set("maxmemory", 0)
    assert replica.log.flush(15)
    assert replica.log.status().is_writable


def test_redis_restarted_empty(server: Any, open_replica: Callable[..., Replica]) -> None:
    writer, reader = open_replica(server.url), open_replica(server.url)
    writer.teach(0, "r1")
    assert reader.knows(20)
    server.stop()
    assert reader.reaches(LogLevel.LOCAL)
    server.start()
    assert reader.reaches(LogLevel.SHARED)
    assert reader.knows(0), "the log no longer holds it"
    assert reader.indexes._tailer.num_reloads > 0
    assert writer.knows(20), "its own records are known to it without the server"
    writer.teach(30, "r2")
    assert reader.knows(20)
    assert writer.knows(40)
    reader.run(9)


def test_redis_turns_read_only_and_fails_over(
    server: Any, second_server: Any, open_replica: Callable[..., Replica]
) -> None:
    replica = open_replica(server.tcp_url)
    replica.teach(0)
    assert replica.log.flush(10)
    second_server.start()
    with server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(second_server.port))
    replica.run(10)
    replica.teach(30)
    assert wait_for(lambda: not replica.log.status().is_writable, 15)
    assert "read only" in replica.log.status().last_error.lower()
    with server.client() as client:
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert replica.log.flush(15)
    assert replica.log.status().is_writable
    assert wait_for(lambda: replica.indexes.live("local").num_tokens > 0, 15)


def test_a_deletion_reaches_every_replica_and_every_tier(
    server: Any, open_replica: Callable[..., Replica]
) -> None:
    one, other = open_replica(server.url), open_replica(server.url)
    one.teach(0, "r1")
    other.teach(25, "r2")
    assert one.knows(40)
    assert other.knows(40)
    one.log.delete(Deletion("local", DeletionKind.RUN, "r2"))
    assert one.knows(20)
    assert other.knows(20)
    assert open_replica(server.url).knows(20)


def test_a_replica_cut_off_for_too_long_stops_using_what_may_be_deleted(
    server: Any, open_replica: Callable[..., Replica]
) -> None:
    one = open_replica(server.url)
    cut_off = open_replica(server.tcp_url, max_unconfirmed_s=1.0)
    one.teach(0, "r1")
    assert cut_off.knows(20)
    index = cut_off.indexes.live("local")
    assert wait_for(lambda: not index._is_suspended, 10)
    with server.client() as client:
        client.config_set("bind", "127.0.0.2")  # the network between them is gone
        client.client_kill_filter(_type="normal", skipme=True)
    one.log.delete(Deletion("local", DeletionKind.RUN, "r1"))
    assert wait_for(lambda: index._is_suspended, 15)
    with server.client() as client:
        client.config_set("bind", "127.0.0.1")
    assert cut_off.knows(0)
    assert wait_for(lambda: not index._is_suspended, 15)


def test_a_cluster_found_later_is_never_used(
    absent_server: Any, open_replica: Callable[..., Replica]
) -> None:
    replica = open_replica(absent_server.url)
    absent_server.start_cluster()
    replica.teach(0)
    assert wait_for(lambda: "Cluster is not supported" in replica.log.status().last_error, 15)
    assert replica.knows(20)
    assert replica.reaches(LogLevel.LOCAL)
