"""The sealed tier of a namespace: built, found again, confirmed, masked, expired, crashed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import CorruptRecordError
from whiflash.trajectories.sealed import file as segment_file
from whiflash.trajectories.sealed.builder import SealBuilder
from whiflash.trajectories.sealed.file import erase_covered, read_segment, segment_numbers
from whiflash.trajectories.sealed.folder import SealedFolder
from whiflash.trajectories.sealed.job import MAX_SEGMENTS
from whiflash.trajectories.sealed.ledger import Run
from whiflash.trajectories.sealed.text import DEAD, LAST, token_ids
from whiflash.trajectories.sealed.tier import MIN_BYTES, SealedTier
from whiflash.trajectories.sealed.volume import MAX_REPEATS, part_of_runs, sealed_data

QUOTA = 2**22


def run(
    number: int, run_id: str = "", subject: str = "", length: int = 40, time_ms: int = 0
) -> Run:
    tokens = np.random.default_rng(number).integers(0, 60_000, length).astype(np.int32)
    return Run(number, number, run_id or f"r{number}", subject, tokens)


def tier_at(root: Path, max_bytes: int = QUOTA) -> SealedTier:
    made = SealedTier("a", SealedFolder.beside_log(root), max_bytes)
    made.load()
    return made


def seal(tier: SealedTier, *runs: Run) -> None:
    tier.take(runs)
    work_out(tier)


def work_out(tier: SealedTier) -> None:
    for _ in range(100):
        if not tier.work():
            tier.check_integrity()
            return
    raise AssertionError("work without end")


def held(tier: SealedTier) -> list[int]:
    """Ids of the runs that may be drafted from, oldest first."""
    found: list[int] = []
    for segment in tier.segments:
        found += segment.data.directory.record_ids[segment.ledger.states == 0].tolist()
    return found


def texts(tier: SealedTier) -> dict[int, list[int]]:
    found = {}
    for segment in tier.segments:
        directory = segment.data.directory
        split = np.split(token_ids(segment.data.text), directory.ends[:-1])
        found.update(zip(directory.record_ids.tolist(), map(list, split), strict=True))
    return found


def bytes_on_disk(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def packed(tokens: Sequence[int]) -> bytes:
    return b"".join(int(token).to_bytes(3, "big") for token in reversed(tokens[:-1]))


def by_run(run_id: str) -> Deletion:
    return Deletion("a", DeletionKind.RUN, run_id)


# Restart


def test_files_are_used_again_for_what_the_log_still_holds(tmp_path: Path) -> None:
    runs = [run(number) for number in range(1, 21)]
    seal(tier_at(tmp_path), *runs)
    again = tier_at(tmp_path)
    assert again.num_tokens == 0, "nothing is used before the log was met"
    assert [again.confirm(n) for n in (1, 2, 99)] == [True, True, False]
    assert held(again) == [1, 2]
    again.complete()
    work_out(again)
    assert held(again) == [1, 2]
    assert texts(again) == {n: runs[n - 1].tokens.tolist() for n in (1, 2)}
    assert packed(runs[5].tokens.tolist()) not in bytes_on_disk(tmp_path)
    assert packed(runs[0].tokens.tolist()) in bytes_on_disk(tmp_path)


def test_a_log_that_is_read_anew_brings_back_what_it_holds(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    seal(tier, *(run(number) for number in range(1, 6)))
    tier.clear()
    assert held(tier) == []
    assert tier.confirm(3)
    tier.complete()
    work_out(tier)
    assert held(tier) == [3]


def test_another_namespace_finds_nothing_in_the_same_folder(tmp_path: Path) -> None:
    seal(tier_at(tmp_path), run(1))
    other = SealedTier("b", SealedFolder.beside_log(tmp_path), QUOTA)
    other.load()
    assert not other.segments
    # Even where its folder was given the other's file, the file says whose it is.
    mine = SealedFolder.beside_log(tmp_path).of_namespace("a")
    theirs = SealedFolder.beside_log(tmp_path).of_namespace("b")
    mine.rename(theirs)
    moved = SealedTier("b", SealedFolder.beside_log(tmp_path), QUOTA)
    moved.load()
    assert not moved.segments
    assert moved.num_corrupt == 1


# Crash


@pytest.mark.parametrize("stage", ["write", "fsync", "rename"])
def test_a_crash_in_the_middle_of_a_build_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    tier = tier_at(tmp_path)
    seal(tier, run(1), run(2))

    class PowerCut(BaseException):
        pass

    def cut(*_: object) -> None:
        raise PowerCut

    if stage == "write":
        pieces = segment_file._pieces
        monkeypatch.setattr(segment_file, "_pieces", lambda *a: [pieces(*a)[0][:10], cut])
    elif stage == "fsync":
        monkeypatch.setattr(os, "fsync", cut)
    else:
        monkeypatch.setattr(Path, "replace", cut)
    tier.take([run(3)])
    with pytest.raises((PowerCut, TypeError)):
        tier.work()
    monkeypatch.undo()
    folder = SealedFolder.beside_log(tmp_path).of_namespace("a")
    assert list(folder.glob("*.sealed-part")), "the crash left its traces"
    again = tier_at(tmp_path)
    assert all(again.confirm(number) for number in (1, 2))
    assert not again.confirm(3), "it comes from the log again"
    assert not list(folder.glob("*.sealed-part"))
    seal(again, run(3))
    assert held(again) == [1, 2, 3]


def test_a_crash_between_a_merge_and_the_removal_of_its_sources(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    folder = SealedFolder.beside_log(tmp_path).of_namespace("a")
    for number in range(1, MAX_SEGMENTS + 1):
        seal(tier, run(number))
    saved = {path: path.read_bytes() for path in folder.glob("*.sealed")}
    seal(tier, run(50))  # one too many: two are merged
    for path, content in saved.items():
        path.write_bytes(content)
    again = tier_at(tmp_path)
    ids = np.concatenate([s.data.directory.record_ids for s in again.segments]).tolist()
    assert sorted(ids) == [1, 2, 3, 4, 50], "every run once"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_that_was_altered_anywhere_is_not_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("sealed")
    seal(tier_at(root), run(1, length=20), run(2, length=9))
    folder = SealedFolder.beside_log(root).of_namespace("a")
    (path,) = folder.glob("*.sealed")
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises((CorruptRecordError, ValueError)):
        read_segment(path, "a")
    again = tier_at(root)
    assert again.num_corrupt == 1
    assert not again.confirm(1)
    seal(again, run(1))
    assert held(again) == [1]


# Deletion, expiry, quota


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=20),
    st.sampled_from([("run", "r1"), ("subject", "s1"), ("namespace", "")]),
)
def test_what_is_deleted_is_masked_at_once_and_then_cut_out(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], which: tuple[str, str]
) -> None:
    root = tmp_path_factory.mktemp("sealed")
    tier = tier_at(root)
    runs = [run(n, f"r{r}", f"s{s}") for n, (r, s) in enumerate(rows, 1)]
    for begin in range(0, len(runs), 4):
        seal(tier, *runs[begin : begin + 4])
    deletion = Deletion("a", DeletionKind(which[0]), which[1])
    kept = [one for one in runs if not deletion.covers_source(one.run_id, one.subject)]
    gone = [one for one in runs if deletion.covers_source(one.run_id, one.subject)]
    tier.delete(deletion)
    assert sorted(held(tier)) == sorted(one.record_id for one in kept)
    stored = bytes_on_disk(root)
    assert not any(packed(one.tokens.tolist()) in stored for one in gone), "gone from the disk"
    work_out(tier)
    assert texts(tier) == {one.record_id: one.tokens.tolist() for one in kept}
    assert not any(tier.confirm(one.record_id) for one in gone)


def test_a_deletion_while_its_runs_are_being_sealed(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    tier.take([run(1, "r1"), run(2, "r2")])
    building, may_go_on = threading.Event(), threading.Event()
    written = tier._written

    def slow(data):
        building.set()
        assert may_go_on.wait(10)
        return written(data)

    tier._written = slow
    builder = threading.Thread(target=tier.work)
    builder.start()
    assert building.wait(10)
    tier.take([run(3, "r1"), run(4, "r4")])  # these wait
    tier.delete(by_run("r1"))
    may_go_on.set()
    builder.join()
    assert held(tier) == [2]
    assert packed(run(1).tokens.tolist()) not in bytes_on_disk(tmp_path)
    work_out(tier)
    assert held(tier) == [2, 4]


@pytest.mark.parametrize("moment", ["before the rename", "before it is opened"])
def test_a_deletion_by_the_log_while_a_file_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The file log erases what a tombstone covers before the tailer has met it."""
    tier = tier_at(tmp_path)
    folder = SealedFolder.beside_log(tmp_path).of_namespace("a")
    tier.take([run(1, "r1"), run(2, "r2")])
    replace, was_erased = Path.replace, []

    def erasing(path: Path, target: Path) -> None:
        is_first = not was_erased
        was_erased.append(True)
        if is_first and moment == "before the rename":
            erase_covered(folder, by_run("r1"))
        replace(path, target)
        if is_first:
            erase_covered(folder, by_run("r1"))

    monkeypatch.setattr(Path, "replace", erasing)
    assert tier.work()
    tier.delete(by_run("r1"))
    assert held(tier) == [2]
    assert packed(run(1).tokens.tolist()) not in bytes_on_disk(tmp_path)
    work_out(tier)
    assert held(tier) == [2]
    assert tier.num_failures == 0


def test_a_record_that_is_written_again_after_its_deletion_is_another(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    seal(tier, run(1, "r1"), run(2))
    tier.delete(by_run("r1"))
    assert not tier.confirm(1), "an importer's ids are the same the second time"
    seal(tier, run(1, "r1"))
    assert sorted(held(tier)) == [1, 2]


def test_runs_expire_and_are_cut_out_when_they_are_many(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    seal(tier, *(run(number) for number in range(1, 101)))
    assert tier.expire(3) == 2
    assert held(tier)[0] == 3
    assert not tier.work(), "two in a hundred may wait"
    assert tier.expire(31) == 28
    work_out(tier)
    assert sorted(texts(tier)) == list(range(31, 101))
    assert tier.expire(10**6) == 70
    assert not tier.segments
    assert not segment_numbers(SealedFolder.beside_log(tmp_path).of_namespace("a"))


def test_the_oldest_go_when_the_quota_is_reached(tmp_path: Path) -> None:
    tier = tier_at(tmp_path, MIN_BYTES)
    for number in range(1, 60):
        tier.take([run(number, length=500)])
        assert tier.work()
    work_out(tier)
    assert tier.num_evicted > 0
    assert tier.num_bytes <= MIN_BYTES
    assert held(tier)[-1] == 59
    assert held(tier) == list(range(held(tier)[0], 60))
    tier.take([run(1)])
    assert not tier.has_work, "what is older than all that a full tier holds is not sealed again"


def test_identical_runs_are_capped(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    same = run(1).tokens
    seal(tier, *(Run(n, n, "", "", same) for n in range(1, 21)), run(50))
    assert held(tier) == [*range(21 - MAX_REPEATS, 21), 50]


def test_ids_that_three_bytes_do_not_hold_are_left_out(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    large = Run(1, 1, "", "", np.array([LAST], np.int32))
    seal(tier, large, run(2))
    assert held(tier) == [2]


# Memory and threads


def test_at_most_eight_bytes_a_token_all_told() -> None:
    runs = [run(number, f"run-{number // 5:08d}", "somebody", 250) for number in range(1, 401)]
    data = sealed_data([part_of_runs(runs)], ())
    pieces = segment_file._pieces("a", data)
    assert sum(len(memoryview(piece).cast("B")) for piece in pieces) <= 8 * 250 * 400


def test_a_temporary_folder_leaves_no_names_behind() -> None:
    folder = SealedFolder.temporary()
    tier = SealedTier("a", folder, QUOTA)
    seal(tier, run(1), run(2))
    assert held(tier) == [1, 2]
    assert not [path for path in folder.root.rglob("*") if path.is_file()]
    tier.delete(by_run("r1"))
    work_out(tier)
    assert held(tier) == [2]
    folder.close()
    assert not folder.root.exists()


def test_a_second_process_of_a_machine_does_not_share_the_folder(tmp_path: Path) -> None:
    first = SealedFolder.of_shared_log(tmp_path, "redis://one")
    second = SealedFolder.of_shared_log(tmp_path, "redis://one")
    other = SealedFolder.of_shared_log(tmp_path, "redis://two")
    assert first.is_durable
    assert other.is_durable
    assert not second.is_durable
    assert len({first.root, second.root, other.root}) == 3
    for folder in (first, second, other):
        folder.close()


def test_files_are_erased_for_whoever_deletes_beside_the_server(tmp_path: Path) -> None:
    tier = tier_at(tmp_path)
    seal(tier, run(1))
    seal(tier, run(2))
    folder = SealedFolder.beside_log(tmp_path).of_namespace("a")
    assert erase_covered(folder, by_run("r2")) == 1
    assert segment_numbers(folder) == [1]
    (folder / "00000007.sealed").write_bytes(b"nonsense")
    assert erase_covered(folder, by_run("r9")) == 1, "nobody can tell what it holds"


def test_the_builder_works_by_turns_and_rests_after_a_failure(tmp_path: Path) -> None:
    tier, failing = tier_at(tmp_path / "one"), tier_at(tmp_path / "two")
    written = failing._written

    def full(_: object) -> None:
        raise OSError(28, "no space left")

    failing._written = full
    builder = SealBuilder(retry_s=0.2)
    for one in (tier, failing):
        one.take([run(1), run(2)])
        builder.wake(one)
    assert not builder.flush(10)
    assert held(tier) == [1, 2]
    assert builder.num_failures == 1
    failing._written = written
    failing.take([run(3)])
    deadline = time.monotonic() + 10
    while held(failing) != [3] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert held(failing) == [3], "what failed comes from the log again; what came later is sealed"
    assert builder.flush(10)
    builder.forget(tier)
    builder.stop()
    builder.stop()
    failing.check_integrity()


def test_states_stay_true_to_a_dead_run() -> None:
    from whiflash.trajectories.sealed.ledger import Directory, Ledger

    ledger = Ledger(Directory.of_runs([run(1), run(2)]), 1)
    ledger.set_states(np.array([True, False]), DEAD)
    assert not ledger.confirm(0)
    assert ledger.confirm(1)
    ledger.set_states(np.array([True, True]), 0)
    assert ledger.states.tolist() == [DEAD, 0]
    ledger.check_integrity()
