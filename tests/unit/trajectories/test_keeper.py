"""Import without copies, export, statistics, deletion by run, end user, project and tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fakeredis
import numpy as np
import pytest

from whiflash.testing.backends import CharacterTokenizer
from whiflash.trajectories import codec
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.holdings import (
    MAX_KNOWN_S,
    KnownHoldings,
    content_id,
    held_records,
)
from whiflash.trajectories.keeper import Deleted, StoreKeeper
from whiflash.trajectories.ladder_log import LadderLog
from whiflash.trajectories.log import LogBatch, TrajectoryLog
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction import Redactor
from whiflash.trajectories.redis_log import RedisLog
from whiflash.trajectories.scope import Owner, ScopeKey, Scopes, Selection

OLD, NEW = ScopeKey("k1", b"o" * 32), ScopeKey("k2", b"n" * 32)
SCOPES = Scopes((OLD,), "characters")
ACME = Selection("acme")
WEB = Selection("acme", "web")


def redis_log(_: Path) -> TrajectoryLog:
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    return LadderLog(RedisLog(client, assume_noeviction=True), MemoryLog())


KINDS: dict[str, Callable[[Path], TrajectoryLog]] = {
    "memory": lambda _: MemoryLog(),
    "file": lambda folder: LadderLog(FileLog(folder / "store"), MemoryLog()),
    "redis": redis_log,
}


@pytest.fixture(params=sorted(KINDS))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrajectoryLog]:
    made = KINDS[request.param](tmp_path)
    yield made
    made.flush()
    made.check_integrity()
    made.close()


def turn(
    text: str, owner: Owner, run_id: str = "r", segment: int = 0, scopes: Scopes = SCOPES
) -> TrajectoryRecord:
    record = TrajectoryRecord(
        scopes.namespace(owner), run_id, np.array(CharacterTokenizer().encode(text), np.int32),
        segment, subject=owner.subject, tokenizer="characters",
    )  # fmt: skip
    return replace(record, record_id=content_id(record))


def keeper(log: TrajectoryLog, scopes: Scopes = SCOPES) -> StoreKeeper:
    return StoreKeeper(log, scopes, Redactor(CharacterTokenizer()))


def texts(log: TrajectoryLog, selection: Selection) -> list[str]:
    held = keeper(log).export(selection)
    return sorted("".join(map(chr, record.tokens.tolist())) for record in held)


WEB_OWNER, ANN = Owner("acme", "web"), Owner("acme", "web", "ann")
DEFAULT, OTHER = Owner("acme"), Owner("other", "web", "ann")


def fill(log: TrajectoryLog) -> None:
    keeper(log).add(
        [
            turn("web run one", WEB_OWNER, "r1"), turn("web run two", WEB_OWNER, "r2"),
            turn("ann run one", ANN, "r1"), turn("default", DEFAULT, "r1"),
            turn("foreign", OTHER, "r1"),
        ]
    )  # fmt: skip


def test_a_second_import_adds_nothing(log: TrajectoryLog) -> None:
    """Also by another process, which knows of the first one's by the log alone."""
    runs = [turn(f"text number {n}", WEB_OWNER, f"r{n}") for n in range(20)]
    first = keeper(log).add(runs)
    assert (first.turns, first.known) == (20, 0)
    assert first.tokens == sum(len(one.tokens) for one in runs)
    again = keeper(log).add(runs)
    assert (again.turns, again.known, again.tokens) == (0, 20, 0)
    more = keeper(log).add([*runs, turn("new", WEB_OWNER, "r99")])
    assert (more.turns, more.known) == (1, 20)
    assert len(texts(log, WEB)) == 21


def test_copies_within_an_import_count_once(log: TrajectoryLog) -> None:
    one = turn("the same", WEB_OWNER)
    added = keeper(log).add([one, one])
    assert (added.turns, added.known) == (1, 1)


def test_secrets_are_cut_out_and_the_import_can_still_be_repeated(log: TrajectoryLog) -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    runs = [turn(f"key {secret} in the middle", WEB_OWNER), turn(secret, WEB_OWNER, "r2")]
    first = keeper(log).add(runs)
    assert (first.turns, first.masked) == (1, 1)
    assert not any(secret in text for text in texts(log, WEB))
    again = keeper(log).add(runs)
    assert (again.turns, again.known, again.masked) == (0, 1, 1)


def test_an_export_is_not_imported_twice_into_its_own_store(log: TrajectoryLog) -> None:
    """Turns of a running engine have random record ids, what was exported has others."""
    live = replace(turn("live turn", WEB_OWNER), record_id=12345)
    log.append(live)
    assert log.flush()
    exported = [replace(one, record_id=content_id(one)) for one in keeper(log).export(WEB)]
    assert keeper(log).add(exported).turns == 0


def test_what_was_deleted_can_be_imported_again(log: TrajectoryLog) -> None:
    held = keeper(log)
    held.add([turn("one", WEB_OWNER)])
    held.delete_run(WEB, "r")
    assert texts(log, WEB) == []
    fresh = replace(turn("one", WEB_OWNER), time_ms=2**42)
    assert held.add([fresh]).turns == 1
    assert texts(log, WEB) == ["one"]


def test_turns_that_say_the_same_are_all_moved_and_only_once(log: TrajectoryLog) -> None:
    """35 turns of calls without a run id had become 24: what they say was all that told them
    apart."""
    live = [
        replace(turn(f"call {n % 5}", WEB_OWNER, ""), record_id=n + 1) for n in range(35)
    ]  # fmt: skip
    for one in live:
        log.append(one)
    exported = list(keeper(log).export(WEB))
    assert len(exported) == 35
    assert keeper(log).add(exported, by_id=True).known == 35
    elsewhere = [replace(one, namespace=SCOPES.namespace(OTHER)) for one in exported]
    assert keeper(log).add(elsewhere, by_id=True).turns == 35
    assert keeper(log).add(elsewhere[::-1], by_id=True).turns == 0
    assert len(texts(log, Selection("other"))) == 35


def test_a_recorded_run_and_a_live_copy_of_it_are_both_moved_in_any_order(
    log: TrajectoryLog,
) -> None:
    held = keeper(log)
    held.add([turn("the same", WEB_OWNER)])
    log.append(replace(turn("the same", WEB_OWNER), record_id=77))
    both = [replace(one, namespace=SCOPES.namespace(OTHER)) for one in held.export(WEB)]
    assert keeper(log).add(both[::-1], by_id=True).turns == 2
    assert keeper(log).add([turn("the same", OTHER)]).known == 1


def test_what_was_made_before_its_deletion_is_refused_and_counted_so(log: TrajectoryLog) -> None:
    """It had been counted as added, and no reader was ever given it."""
    held = keeper(log)
    held.add([turn("one", WEB_OWNER), turn("two", WEB_OWNER, "r2")])
    exported = list(held.export(WEB))
    assert held.delete_run(WEB, "r") == Deleted(1, 1)
    again = held.add(exported, by_id=True)
    assert (again.turns, again.known, again.deleted, again.tokens) == (0, 1, 1, 0)
    assert texts(log, WEB) == ["two"]
    assert keeper(log).add(exported, by_id=True).deleted == 1


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_what_is_older_than_the_store_keeps_is_refused_and_counted_so(
    kind: str, tmp_path: Path
) -> None:
    log = KINDS[kind](tmp_path)
    old = replace(turn("one", WEB_OWNER), time_ms=1000)
    for _ in range(2):
        added = keeper(log).add([old])
        assert (added.turns, added.expired) == (0, 1)
    assert texts(log, WEB) == []
    log.close()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_where_nothing_is_found_only_a_shared_store_is_told(kind: str, tmp_path: Path) -> None:
    """Another replica may have such turns waiting; a file store has one writer, which knows."""
    log = KINDS[kind](tmp_path)
    fill(log)
    plain = StoreKeeper(log, Scopes((OLD,)), None)
    before = [log.read(name, "", 64).entries for name in log.namespaces()]
    is_shared = kind == "redis"
    assert plain.delete_run(ACME, "mistyped") == Deleted(0, 3 * is_shared)
    assert plain.delete_subject(WEB, "mistyped") == Deleted(0, 2 * is_shared)
    assert plain.delete_all(Selection("mistyped")) == Deleted(0, 0)
    after = [log.read(name, "", 64).entries for name in log.namespaces()]
    assert (list(map(len, before)) == list(map(len, after))) is not is_shared
    assert plain.delete_run(ACME, "r1") == Deleted(3, 3)
    log.close()


def test_a_record_that_waits_to_be_written_is_told_of_its_deletion() -> None:
    class Stuck(MemoryLog):
        """Its writer has something that no reader sees yet."""

        def may_hold(self, deletion: Deletion) -> bool:
            return True

    log = Stuck()
    assert keeper(log).delete_run(WEB, "r").namespaces == 1
    (entry,) = log.read(SCOPES.namespace(WEB_OWNER), "").entries
    assert isinstance(entry, Deletion)


def test_the_bytes_of_a_deletion_that_broke_off_are_erased_by_its_repetition(
    tmp_path: Path,
) -> None:
    """The tombstone was written, the records behind it were not overwritten: no reader sees them,
    the disk still has them."""
    log = FileLog(tmp_path / "store")
    log.append(turn("one", WEB_OWNER))
    assert log.flush()
    name = SCOPES.namespace(WEB_OWNER)
    shelf = log._shelves.shelf(name)
    shelf.append([codec.encode(Deletion(name, DeletionKind.RUN, "r", 1, 2**42))])
    deletion = Deletion(name, DeletionKind.RUN, "r")
    assert held_records(log, name) == []
    assert log.may_hold(deletion)
    assert keeper(log).delete_run(WEB, "r") == Deleted(0, 1)
    assert not log.may_hold(deletion)
    log.close()


def test_a_run_is_deleted_for_all_end_users_of_the_project_and_for_nobody_else(
    log: TrajectoryLog,
) -> None:
    fill(log)
    assert keeper(log).delete_run(WEB, "r1") == Deleted(2, 2)
    assert texts(log, ACME) == ["default", "web run two"]
    assert texts(log, Selection("other")) == ["foreign"]


def test_an_end_user_is_deleted_from_their_own_scope_and_from_the_shared_one(
    log: TrajectoryLog,
) -> None:
    fill(log)
    labelled = replace(turn("labelled ann", WEB_OWNER, "r3"), subject="ann")
    keeper(log).add([labelled])
    keeper(log).delete_subject(WEB, "ann")
    assert texts(log, ACME) == ["default", "web run one", "web run two"]
    assert texts(log, Selection("other")) == ["foreign"]


def test_an_end_user_of_no_project_selects_nothing_rather_than_the_whole_tenant(
    log: TrajectoryLog,
) -> None:
    fill(log)
    with pytest.raises(ValueError, match="project"):
        keeper(log).delete_subject(ACME, "ann")
    assert len(texts(log, ACME)) == 4


def test_projects_and_tenants_are_deleted_whole(log: TrajectoryLog) -> None:
    fill(log)
    keeper(log).delete_all(WEB)
    assert texts(log, ACME) == ["default"]
    keeper(log).delete_all(ACME)
    assert texts(log, ACME) == []
    assert texts(log, Selection("other")) == ["foreign"]


def test_after_a_new_secret_the_old_ones_are_still_exported_and_deleted(log: TrajectoryLog) -> None:
    fill(log)
    both = Scopes((NEW, OLD), "characters")
    keeper(log, both).add([turn("under the new secret", WEB_OWNER, "r1", scopes=both)])
    assert len(list(keeper(log, both).export(WEB))) == 4
    keeper(log, both).delete_run(WEB, "r1")
    left = ["".join(map(chr, r.tokens.tolist())) for r in keeper(log, both).export(WEB)]
    assert left == ["web run two"]


def test_without_a_tokenizer_what_is_there_can_be_counted_and_deleted(log: TrajectoryLog) -> None:
    fill(log)
    plain = StoreKeeper(log, Scopes((OLD,)), None)
    stats = {one.namespace: one for one in plain.stats(ACME)}
    web = stats[SCOPES.namespace(WEB_OWNER)]
    assert (web.num_records, web.num_runs, web.num_tokens) == (2, 2, 22)
    assert web.num_bytes > 22
    assert 0 < web.oldest_ms <= web.newest_ms
    assert len(stats) == 3
    assert len(plain.stats(None)) == 4
    assert plain.delete_all(ACME) == Deleted(4, 3)
    assert texts(log, ACME) == []


def test_records_behind_their_own_tombstone_are_not_held(log: TrajectoryLog) -> None:
    name = SCOPES.namespace(WEB_OWNER)
    late = replace(turn("late", WEB_OWNER), time_ms=1000)
    log.delete(Deletion(name, DeletionKind.RUN, "r"))
    log.append(late)
    assert log.flush()
    assert held_records(log, name) == []


def test_a_store_that_is_away_is_told_and_nothing_is_half_known() -> None:
    class Away(MemoryLog):
        def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
            return LogBatch((), cursor, is_confirmed=False)

    with pytest.raises(StoreUnavailableError):
        keeper(Away()).add([turn("x", WEB_OWNER)])

    class Full(MemoryLog):
        def flush(self, timeout_s: float = 5.0) -> bool:
            return False

    with pytest.raises(StoreUnavailableError, match="not added twice"):
        keeper(Full()).add([turn("x", WEB_OWNER)])


class CountingLog(MemoryLog):
    """Counts the entries that it hands out."""

    num_read = 0

    def read(self, namespace: str, cursor: str, max_records: int = 64) -> LogBatch:
        batch = super().read(namespace, cursor, max_records)
        self.num_read += len(batch.entries)
        return batch


def test_a_long_import_reads_the_store_once_and_then_what_is_new() -> None:
    log = CountingLog()
    held = keeper(log)
    for batch in range(50):
        held.add([turn(f"text {batch} {n}", WEB_OWNER, f"r{batch}") for n in range(4)])
        log.append(replace(turn(f"another writer {batch}", WEB_OWNER, "w"), record_id=batch + 1))
    assert log.num_read <= 2 * 250
    again = [turn(f"another writer {batch}", WEB_OWNER, "w") for batch in range(50)]
    assert held.add(again).known == 50


def test_what_the_log_trimmed_can_be_imported_again_after_a_while() -> None:
    now = [0.0]
    log = MemoryLog(2000)
    known = KnownHoldings(log, lambda: now[0])
    name = SCOPES.namespace(WEB_OWNER)
    first = turn("first", WEB_OWNER)
    log.append(first)
    assert first.record_id in known.of(name).record_ids
    for number in range(30):
        log.append(turn(f"text number {number}", WEB_OWNER, f"r{number}"))
        assert first.record_id in known.of(name).record_ids, (
            "no log tells of what it trimmed behind a reader"
        )
    assert first.record_id not in {one.record_id for one in held_records(log, name)}
    now[0] = MAX_KNOWN_S + 1
    assert first.record_id not in known.of(name).record_ids


def test_what_a_failed_import_did_not_write_is_written_by_the_next_one() -> None:
    class Stuck(MemoryLog):
        is_stuck = True

        def append(self, record: TrajectoryRecord) -> None:
            if not self.is_stuck:
                super().append(record)

        def flush(self, timeout_s: float = 5.0) -> bool:
            return not self.is_stuck and super().flush(timeout_s)

    log = Stuck()
    held = keeper(log)
    with pytest.raises(StoreUnavailableError, match="import again later"):
        held.add([turn("one", WEB_OWNER)])
    log.is_stuck = False
    assert held.add([turn("one", WEB_OWNER)]).turns == 1
