"""The log of rounds: nothing waits for it, nothing private enters it, a crash loses little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.obs.round_log import RoundLog, read_rounds, rotated_files

RECORD = {
    "sequence": 3, "arm": "retrieval", "entropy": 0.25, "margin": None, "ended": False,
    "draft_ms": {"retrieval": 0.02},
}  # fmt: skip


def wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the log's thread did nothing"
        time.sleep(0.01)


def test_what_is_written_is_read_in_order(tmp_path):
    path = tmp_path / "sub" / "rounds.jsonl.zst"
    with RoundLog(path) as log:
        for i in range(1000):
            log.write(RECORD | {"sequence": i})
    assert list(read_rounds(path)) == [RECORD | {"sequence": i} for i in range(1000)]
    assert (log.num_written, log.num_dropped) == (1000, 0)
    assert path.stat().st_size < 20_000


def test_rotation_bounds_the_disk_and_keeps_the_newest(tmp_path):
    path = tmp_path / "rounds.zst"
    log = RoundLog(path, max_file_bytes=200, max_files=3, flush_s=0.001)
    for i in range(12):
        log.write(RECORD | {"sequence": i})
        wait_for(lambda expected=i + 1: log.num_written == expected)
    log.check_integrity()
    log.close()
    kept = [record["sequence"] for record in read_rounds(path)]
    assert kept == list(range(kept[0], 12))
    assert kept[0] > 0
    assert len(rotated_files(path)) == 2


def test_every_file_begins_with_the_head(tmp_path):
    path = tmp_path / "rounds.zst"
    log = RoundLog(path, max_file_bytes=200, max_files=3, flush_s=0.001)
    log.begin({"kind": "run"})
    for i in range(12):
        log.write(RECORD | {"survival": [0.5, 0.25]})
        wait_for(lambda expected=i + 2: log.num_written >= expected)
    log.close()
    for file in [*rotated_files(path), path]:
        assert next(iter(read_rounds(file)))["kind"] == "run"


def test_a_full_queue_drops_the_oldest_and_counts(tmp_path):
    path = tmp_path / "rounds.zst"
    log = RoundLog(path, max_queue=10, flush_s=60.0)
    for i in range(25):
        log.write({"sequence": i})
    log.check_integrity()
    log.close()
    assert [r["sequence"] for r in read_rounds(path)] == list(range(15, 25))
    assert (log.num_written, log.num_dropped) == (10, 15)


def test_readable_after_the_process_was_killed(tmp_path):
    path = tmp_path / "rounds.zst"
    script = (
        "import sys, time\nfrom whiflash.obs.round_log import RoundLog\n"
        "log = RoundLog(sys.argv[1], flush_s=0.01)\n"
        "for i in range(50): log.write({'sequence': i})\n"
        "while log.num_written < 50: time.sleep(0.01)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGKILL)
    assert [r["sequence"] for r in read_rounds(path)] == list(range(50))


@given(st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_a_torn_end_hides_only_itself(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("torn") / "rounds.zst"
    log = RoundLog(path, flush_s=0.001)
    log.write({"sequence": 0})
    wait_for(lambda: log.num_written == 1)
    whole = path.stat().st_size
    log.write({"sequence": 1})
    log.close()
    torn = path.read_bytes()[: whole + cut]
    path.write_bytes(torn)
    kept = [r["sequence"] for r in read_rounds(path)]
    assert kept in ([0], [0, 1])
    with RoundLog(path) as again:
        again.write({"sequence": 2})
    assert [r["sequence"] for r in read_rounds(path)] == [*kept, 2]


def test_damage_is_told_and_other_files_stay_readable(tmp_path, caplog):
    path = tmp_path / "rounds.zst"
    for i in range(2):
        with RoundLog(path) as log:
            log.write({"sequence": i})
    rotated_files(path)[0].write_bytes(b"\0" * 50)
    assert [r["sequence"] for r in read_rounds(path)] == [1]
    assert "damaged" in caplog.text


@pytest.mark.parametrize(
    "value",
    ["word " * 20, b"bytes", [1, 2, 3], (1,), {"deep": [5]}, {"deep": "x" * 65}, [0.5] * 65, ["a"]],
)
def test_text_and_token_ids_are_refused(tmp_path, value):
    with RoundLog(tmp_path / "rounds.zst") as log, pytest.raises(ValueError, match="round log"):
        log.write({"field": value})


def test_a_lost_disk_costs_records_and_is_told_once(tmp_path, caplog):
    log = RoundLog(tmp_path / "rounds.zst", flush_s=0.001)
    log._file.close()
    for i in range(2):
        log.write({"sequence": i})
        wait_for(lambda expected=i + 1: log.num_dropped == expected)
    log.close()
    assert caplog.text.count("cannot be written") == 1


def test_closing_twice_is_fine_and_writing_after_it_is_not(tmp_path):
    log = RoundLog(tmp_path / "rounds.zst")
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.write(RECORD)


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(read_rounds(tmp_path / "none.zst"))
    with pytest.raises(OSError, match="directory"):
        RoundLog(tmp_path)
