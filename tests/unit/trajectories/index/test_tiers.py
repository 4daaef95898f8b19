"""Both tiers of a namespace, filled from a log: nothing is lost between them, or kept too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from whiflash.core.errors import ConfigError
from whiflash.core.rows import DraftRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.index import NamespaceIndex, Sealing, TrajectoryIndexes
from whiflash.trajectories.index.live import MIN_BYTES
from whiflash.trajectories.log import TrajectoryLog
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord, now_ms
from whiflash.trajectories.sealed.file import segment_numbers
from whiflash.trajectories.sealed.folder import SealedFolder
from whiflash.trajectories.sealed.tier import MIN_BYTES as MIN_SEALED_BYTES

NONE = np.zeros(0, np.int32)
Opener = Callable[..., TrajectoryIndexes]
NUM_RUNS = 120


def record(number: int, namespace: str = "a", length: int = 60, **more: object) -> TrajectoryRecord:
    """Runs of ids of their own, so that a draft tells which run it is from."""
    tokens = np.arange(1000 * number, 1000 * number + length, dtype=np.int32)
    fields = {"subject": f"s{number % 3}", "record_id": number + 1, **more}
    return TrajectoryRecord(namespace, f"r{number}", tokens, **fields)


def drafts(indexes: TrajectoryIndexes, number: int, namespace: str = "a") -> str:
    """Where the drafter finds what follows the start of a run; "" if nowhere."""
    drafter = RetrievalDrafter(indexes)
    context = np.concatenate([[7], record(number).tokens[:5]]).astype(np.int32)
    drafter.open(1, namespace, context, NONE)
    (tree,) = drafter.propose([DraftRow(1, namespace, context, 8, 8)])
    assert not len(tree) or tree.tokens[:3].tolist() == record(number).tokens[5:8].tolist()
    drafter.close(1)
    drafter.check_integrity()
    return tree.source if len(tree) else ""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Small indexes over a log: a live tier of a few thousand tokens, the rest sealed."""
    made: list[TrajectoryIndexes] = []

    def make(log: TrajectoryLog, root: Path = tmp_path, **limits: float) -> TrajectoryIndexes:
        sealing = Sealing(SealedFolder.beside_log(root), 2**24, int(limits.pop("quota", 2**22)))
        made.append(TrajectoryIndexes(log, 4 * MIN_BYTES, MIN_BYTES, sealing=sealing, **limits))
        made[-1].live("a")
        settle(made[-1])
        return made[-1]

    yield make
    made[-1].check_integrity()  # it has the files of those that were closed before it
    for indexes in made:
        indexes.close()


def settle(indexes: TrajectoryIndexes) -> None:
    assert indexes.flush(30)
    assert indexes.flush_sealed(30)


def fill(log: TrajectoryLog, numbers: range = range(NUM_RUNS), namespace: str = "a") -> None:
    for number in numbers:
        log.append(record(number, namespace))
    assert log.flush()


def test_old_runs_are_found_in_files_and_new_ones_in_memory(opened: Opener) -> None:
    log = MemoryLog()
    indexes = opened(log)
    fill(log)
    settle(indexes)
    index = indexes.live("a")
    assert index.num_bytes <= MIN_BYTES
    assert drafts(indexes, 0) == "sealed"
    assert drafts(indexes, NUM_RUNS - 1) == "live"
    assert all(drafts(indexes, number) for number in range(NUM_RUNS))
    assert index.num_tokens == 60 * NUM_RUNS, "every run is in one tier"
    assert indexes.num_sealed_tokens + index.live.num_tokens == index.num_tokens


def test_isolation_in_pairs_in_the_sealed_tier(opened: Opener) -> None:
    log = MemoryLog()
    indexes = opened(log)
    indexes.live("b")
    fill(log)
    fill(log, range(500, 500 + NUM_RUNS), "b")
    settle(indexes)
    for number in (0, 5, 500, 505):
        own, other = ("a", "b") if number < 500 else ("b", "a")
        assert drafts(indexes, number, own) == "sealed"
        assert drafts(indexes, number, other) == ""


def test_after_a_restart_files_are_used_again_not_built_again(
    opened: Opener, tmp_path: Path
) -> None:
    log = FileLog(tmp_path)
    first = opened(log)
    fill(log)
    settle(first)
    folder = SealedFolder.beside_log(tmp_path).of_namespace("a")
    written = {n: (folder / f"{n:08d}.sealed").stat().st_ino for n in segment_numbers(folder)}
    first.close()
    log.close()
    again_log = FileLog(tmp_path)
    again = opened(again_log)
    now = {n: (folder / f"{n:08d}.sealed").stat().st_ino for n in segment_numbers(folder)}
    assert now == written != {}
    assert again.live("a").num_tokens == 60 * NUM_RUNS
    assert drafts(again, 0) == "sealed"
    assert drafts(again, NUM_RUNS - 1) == "live"
    again_log.close()


@pytest.mark.parametrize("kind", ["run", "subject", "namespace"])
def test_a_deletion_mid_session_holds_in_every_tier_at_once(
    opened: Opener, tmp_path: Path, kind: str
) -> None:
    log = FileLog(tmp_path)
    indexes = opened(log)
    fill(log)
    settle(indexes)
    index = indexes.live("a")
    drafter = RetrievalDrafter(indexes)
    places = {0: "sealed", 3: "sealed", NUM_RUNS - 3: "live"}
    for number, source in places.items():  # sessions that are open all the while
        context = record(number).tokens[:9].copy()
        drafter.open(number, "a", context, NONE)
        (tree,) = drafter.propose([DraftRow(number, "a", context, 8, 8)])
        assert tree.source == source
    values = {"run": ["r0", f"r{NUM_RUNS - 3}"], "subject": ["s0"], "namespace": [""]}[kind]
    for value in values:
        log.delete(Deletion("a", DeletionKind(kind), value))
    assert indexes.flush()
    gone = {"run": {0, NUM_RUNS - 3}, "subject": set(places), "namespace": set(places)}[kind]
    for number in places:
        context = record(number).tokens[:12].copy()
        (tree,) = drafter.propose([DraftRow(number, "a", context, 8, 8)])
        assert (len(tree) == 0) == (number in gone), (number, tree.source)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*.sealed"))
    assert packed(0) not in stored
    settle(indexes)  # what the live tier gives up meanwhile is in neither until it is sealed
    left = {"run": NUM_RUNS - 2, "subject": NUM_RUNS * 2 // 3, "namespace": 0}[kind]
    assert index.num_tokens == 60 * left
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*.sealed"))
    assert packed(0) not in stored
    assert (packed(1) in stored) == (kind != "namespace")
    log.close()


def packed(number: int) -> bytes:
    return b"".join(int(t).to_bytes(3, "big") for t in reversed(record(number).tokens[:-1]))


def test_what_was_deleted_while_the_server_was_down_is_not_found_again(
    opened: Opener, tmp_path: Path
) -> None:
    log = FileLog(tmp_path)
    first = opened(log)
    fill(log)
    settle(first)
    first.close()
    log.delete(Deletion("a", DeletionKind.RUN, "r0"))  # as `whiflash store delete` does
    assert packed(0) not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.sealed"))
    again = opened(log)
    assert drafts(again, 0) == ""
    assert drafts(again, 1)
    assert again.live("a").num_tokens == 60 * (NUM_RUNS - 1)
    log.close()


def test_a_log_that_lost_all_leaves_nothing_to_draft_from(opened: Opener, tmp_path: Path) -> None:
    """A Redis that was restarted empty, or another store under the same name."""
    log = MemoryLog()
    first = opened(log)
    fill(log)
    settle(first)
    first.close()
    again = opened(MemoryLog())
    assert again.live("a").num_tokens == 0
    assert not list(tmp_path.rglob("*.sealed"))


def test_runs_leave_both_tiers_when_they_are_too_old(opened: Opener) -> None:
    log = MemoryLog()
    indexes = opened(log, max_age_s=3600.0)
    old_ms, new_ms = now_ms() - 3_590_000, now_ms() - 60_000
    for number in range(NUM_RUNS):
        log.append(record(number, time_ms=old_ms if number % 2 else new_ms))
    log.append(record(999, time_ms=now_ms() - 4_000_000))
    settle(indexes)
    index = indexes.live("a")
    assert index.num_expired == 1, "one came too late"
    assert drafts(indexes, 1) == drafts(indexes, 2) == "sealed"
    assert drafts(indexes, NUM_RUNS - 1) == "live"
    index._clock_ms = lambda: now_ms() + 20_000
    index._expired_at -= 3600
    wait_until(lambda: index.num_expired == 1 + NUM_RUNS // 2)
    settle(indexes)
    assert [drafts(indexes, number) for number in (1, NUM_RUNS - 1)] == ["", ""]
    assert drafts(indexes, 2) == "sealed"
    assert index.num_tokens == 60 * NUM_RUNS // 2


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_quotas_hold_in_both_tiers(opened: Opener) -> None:
    log = MemoryLog()
    indexes = opened(log, quota=MIN_SEALED_BYTES)
    fill(log, range(1000))
    settle(indexes)
    index = indexes.live("a")
    assert index.num_bytes <= MIN_BYTES
    assert index.num_sealed_bytes <= MIN_SEALED_BYTES
    assert drafts(indexes, 0) == ""
    assert drafts(indexes, 950)


def test_nothing_is_drafted_from_sealed_runs_while_a_deletion_may_have_been_missed(
    opened: Opener,
) -> None:
    log = MemoryLog()
    indexes = opened(log)
    fill(log)
    settle(indexes)
    index = indexes.live("a")
    indexes.close()  # the tailer would open it again
    index.suspend()
    assert drafts(indexes, 0) == ""
    index.resume()
    assert drafts(indexes, 0) == "sealed"


def test_without_sealing_old_runs_are_forgotten() -> None:
    log = MemoryLog()
    with TrajectoryIndexes(log, MIN_BYTES) as indexes:
        indexes.live("a")
        fill(log)
        assert indexes.flush()
        assert drafts(indexes, 0) == ""
        assert indexes.num_sealed_bytes == 0


def test_a_lookup_gives_up_rather_than_wait_for_a_stuck_builder(opened: Opener) -> None:
    log = MemoryLog()
    indexes = opened(log)
    fill(log)
    settle(indexes)
    index = indexes.live("a")
    assert index.sealed is not None
    with index.sealed.lock:
        assert drafts(indexes, 0) == ""
    assert index.num_busy == 1


def test_misuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sealed trajectories need"):
        Sealing(SealedFolder.beside_log(tmp_path), 10, 10)
    with pytest.raises(ValueError, match="another namespace"):
        NamespaceIndex("b", MIN_BYTES, 60.0).add(record(1))


def test_a_million_tokens_within_the_budgets(tmp_path: Path) -> None:
    """design.md 10: at most 84 bytes a token live, 8 sealed."""
    rng = np.random.default_rng(4)
    phrases = rng.integers(0, 49_152, (400, 64)).astype(np.int32)
    log = MemoryLog()
    sealing = Sealing(SealedFolder.beside_log(tmp_path))
    with TrajectoryIndexes(log, 84 * 400_000, sealing=sealing) as indexes:
        index = indexes.live("a")
        num_tokens = 0
        while num_tokens < 1_000_000:
            stretches = [
                phrases[int(400 * rng.random() ** 2), : rng.integers(8, 64)] for _ in "1234"
            ]
            new = rng.integers(0, 49_152, 60).astype(np.int32)
            tokens = np.concatenate([*stretches, new])
            log.append(TrajectoryRecord("a", f"r{num_tokens}", tokens))
            num_tokens += len(tokens)
        assert indexes.flush(60)
        assert indexes.flush_sealed(60)
        indexes.check_integrity()
        assert index.sealed is not None
        assert index.num_tokens == num_tokens
        assert index.num_bytes <= 84 * 400_000
        assert index.num_bytes <= 84 * index.live.num_tokens
        assert index.sealed.num_tokens > 200_000
        assert index.num_sealed_bytes <= 8 * index.sealed.num_tokens
