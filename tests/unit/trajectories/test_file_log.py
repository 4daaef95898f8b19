"""The file log: crashes, the lock, damage, limits, and what is left of deleted bytes."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whiflash.core.errors import ConfigError
from whiflash.trajectories import codec
from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.errors import StoreLockedError, StoreUnavailableError
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.file_log.segment import scan
from whiflash.trajectories.log import START, LogLevel, LogLimits
from whiflash.trajectories.record import TrajectoryRecord

Opener = Callable[..., FileLog]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Opener]:
    logs: list[FileLog] = []

    def make(**options: Any) -> FileLog:
        logs.append(FileLog(tmp_path / "store", **options))
        return logs[-1]

    yield make
    for log in logs:
        if log.status().level is not LogLevel.OFF:  # else another one may have written since
            log.flush()
            log.check_integrity()
            log.close()


def record(first: int, namespace: str = "a", **fields: Any) -> TrajectoryRecord:
    return TrajectoryRecord(
        namespace, fields.pop("run_id", ""), np.arange(first, first + 4), **fields
    )


def put(log: FileLog, *records: TrajectoryRecord) -> None:
    for entry in records:
        log.append(entry)
    assert log.flush()


def firsts(log: FileLog, namespace: str = "a") -> list[int]:
    found, cursor = [], START
    while True:
        batch = log.read(namespace, cursor, 50)
        found += [int(r.tokens[0]) for r in batch.records]
        cursor = batch.cursor
        if batch.is_end:
            return found


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("store/*/*.log"))


def test_records_and_deletions_outlive_the_process(open_log: Opener, tmp_path: Path) -> None:
    log = open_log()
    put(log, *(record(first, run_id=f"r{first}") for first in range(5)))
    log.delete(Deletion("a", DeletionKind.RUN, "r3"))
    log.close()
    again = open_log()
    assert firsts(again) == [0, 1, 2, 4]
    put(again, record(5))
    assert firsts(again) == [0, 1, 2, 4, 5]
    assert all(path.stat().st_mode & 0o077 == 0 for path in segments(tmp_path))


APPENDING = """
import sys, numpy as np
from whiflash.trajectories.file_log import FileLog
from whiflash.trajectories.log import LogLimits
from whiflash.trajectories.record import TrajectoryRecord

log = FileLog(sys.argv[1], LogLimits(max_namespace_bytes=2**20), fsync_s=None)
for first in range(int(sys.argv[2]), 10**9):
    log.append(TrajectoryRecord("a", "", np.full(first % 700 + 1, first)))
    if first % 20 == 0:
        log.flush()
        print(first, flush=True)
"""


def test_a_process_killed_in_the_middle_of_an_append_loses_no_written_record(
    open_log: Opener, tmp_path: Path
) -> None:
    """Each kill comes at another moment; what was flushed before must be there, in order."""
    begin = 0
    for delay_s in (0.05, 0.11, 0.17):
        command = [sys.executable, "-c", APPENDING, str(tmp_path / "store"), str(begin)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            flushed = int(child.stdout.readline())
            time.sleep(delay_s)
            child.send_signal(signal.SIGKILL)
            flushed = max([flushed, *map(int, child.stdout.read().split())])
        log = open_log(limits=LogLimits(max_namespace_bytes=2**20))
        found = firsts(log)
        assert found == list(range(found[0], found[-1] + 1))
        assert found[-1] >= flushed
        assert log.read("a", START).num_corrupt == 0
        begin = found[-1] + 1
        log.close()


def test_a_torn_end_is_cut_off_wherever_it_was_torn(open_log: Opener, tmp_path: Path) -> None:
    log = open_log()
    put(log, record(0), record(1))
    log.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    last = list(scan(whole))[-1]
    for size in range(last.start + 1, last.end):
        path.write_bytes(whole[:size])
        again = open_log()
        assert firsts(again) == [0]
        assert path.stat().st_size == last.start
        put(again, record(7))
        assert firsts(again) == [0, 7]
        again.check_integrity()
        again.close()


def test_damage_in_the_middle_costs_what_it_hit_and_is_counted(
    open_log: Opener, tmp_path: Path
) -> None:
    log = open_log()
    put(log, *(record(first) for first in range(6)))
    log.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    frames = list(scan(bytes(data)))
    data[frames[1].start + 3] ^= 0xFF  # its length
    data[frames[4].end - 6] ^= 1  # its tokens
    path.write_bytes(bytes(data))
    again = open_log()
    batch = again.read("a", START)
    assert [int(r.tokens[0]) for r in batch.records] == [0, 2, 3, 5]
    assert batch.num_corrupt == 2
    assert again.status().num_corrupt == 2


def test_a_second_writer_is_told_who_holds_the_store(open_log: Opener, tmp_path: Path) -> None:
    log = open_log()
    with pytest.raises(StoreLockedError, match=rf"process {os.getpid()} on .*name another store"):
        FileLog(tmp_path / "store")
    code = (
        f"from whiflash.trajectories.file_log import FileLog; FileLog({str(tmp_path / 'store')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(rf"StoreLockedError.*process {os.getpid()} ", done.stderr)
    put(log, record(1))
    log.close()
    assert firsts(open_log()) == [1]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name another store"):
        FileLog(tmp_path / "file" / "store")


def test_over_its_quota_a_namespace_gives_up_its_oldest(open_log: Opener, tmp_path: Path) -> None:
    quota = 2**19
    log = open_log(limits=LogLimits(max_namespace_bytes=quota))
    put(log, record(10**6, "quiet"))
    cursor = ""
    for begin in range(0, 4000, 400):
        records = [TrajectoryRecord("a", "", np.full(200, begin + k)) for k in range(400)]
        put(log, *records)
        log.trim()
        cursor = cursor or log.read("a", START, 1).cursor
    found = firsts(log)
    assert found == list(range(found[0], 4000))
    assert 500 < found[0] < 3500
    assert sum(path.stat().st_size for path in segments(tmp_path)) < quota + 2**17
    assert firsts(log, "quiet") == [10**6]
    assert log.read("a", cursor).has_gap
    assert not log.read("a", START).has_gap


def test_over_the_total_the_largest_namespace_pays(open_log: Opener) -> None:
    log = open_log(limits=LogLimits(max_namespace_bytes=2**19, max_bytes=2**18))
    put(log, record(1, "quiet"))
    put(log, *(TrajectoryRecord("a", "", np.full(200, k)) for k in range(1200)))
    log.trim()
    assert firsts(log, "quiet") == [1]
    assert firsts(log)[0] > 0


def test_what_is_too_old_is_not_handed_out_and_then_removed(
    open_log: Opener, tmp_path: Path
) -> None:
    log = open_log(limits=LogLimits(max_age_s=60))
    old = int(1e3 * (time.time() - 61))
    put(log, record(1, time_ms=old), record(2))
    assert firsts(log) == [2]
    (path,) = segments(tmp_path)
    os.utime(path, (time.time() - 61, time.time() - 61))
    log.trim()
    assert segments(tmp_path) == []
    put(log, record(3))
    assert firsts(log) == [3]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(DeletionKind.RUN, "r"), (DeletionKind.SUBJECT, "anna"), (DeletionKind.NAMESPACE, "")],
)
def test_deleted_bytes_are_no_longer_in_the_files(
    open_log: Opener, tmp_path: Path, kind: DeletionKind, value: str
) -> None:
    log = open_log()
    secret = TrajectoryRecord("a", "r", np.full(64, 4242), subject="anna")
    put(log, record(1), secret, record(2))
    trace = codec.encode(secret)[-70:-4]
    assert any(trace in path.read_bytes() for path in segments(tmp_path))
    log.delete(Deletion("a", kind, value))
    assert not any(trace in path.read_bytes() for path in segments(tmp_path))
    assert firsts(log) == ([] if kind is DeletionKind.NAMESPACE else [1, 2])


def test_a_full_disk_costs_nothing_but_records(
    open_log: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    put(log, record(0))
    write, is_full = os.pwrite, True

    def full(file: int, data: bytes, offset: int) -> int:
        if not is_full:
            return write(file, data, offset)
        if len(data) > 20:
            return write(file, data[:20], offset)  # what still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    for first in range(1, 4):
        log.append(record(first))
    assert not log.flush(0.3)
    assert firsts(log) == [0]
    status = log.status()
    assert not status.is_writable or status.num_failures > 0
    assert "No space left" in status.last_error
    with pytest.raises(StoreUnavailableError, match="repeat the deletion"):
        log.delete(Deletion("a", DeletionKind.RUN, "r"))
    is_full = False
    assert log.flush(10)
    assert firsts(log) == [0, 1, 2, 3]
    assert log.status().is_writable
    log.check_integrity()


def test_appending_waits_for_no_disk(open_log: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (time.sleep(0.2), sync(file))[1])
    log = open_log(fsync_s=0.0)
    slowest = 0.0
    for first in range(200):
        started = time.perf_counter()
        log.append(record(first))
        slowest = max(slowest, time.perf_counter() - started)
    assert slowest < 0.15
    assert log.flush(20)
    assert firsts(log) == list(range(200))
