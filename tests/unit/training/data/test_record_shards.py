"""Shards: whatever the interruptions, the same bytes in the end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.errors import ConfigError
from whiflash.training.data.shards import RecordShards, read_shard


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.zst"))}


@settings(max_examples=25, deadline=None)
@given(
    total=st.integers(1, 40),
    size=st.integers(1, 12),
    sittings=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_interrupted_equals_uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, total: int, size: int, sittings: int, seed: int
) -> None:
    records = [{"number": n, "answer": [n * 7 % 11] * (n % 5)} for n in range(total)]
    whole = RecordShards(tmp_path_factory.mktemp("whole"), total, size)
    for record in records:
        whole.add(record)
    order = random.Random(seed).sample(records, total)
    folder = tmp_path_factory.mktemp("parts")
    for part in range(sittings):
        shards = RecordShards(folder, total, size)
        assert shards.num_records == sum(len(order[k::sittings]) for k in range(part))
        for record in order[part::sittings]:
            shards.add(record)
    again = RecordShards(folder, total, size)
    assert list(again.missing()) == []
    assert list(again.records()) == records
    assert _content(folder) == _content(whole._folder)


def test_a_torn_line_of_the_journal_counts_for_nothing(tmp_path: Path) -> None:
    RecordShards(tmp_path, 9, 4).add({"number": 2})
    with (tmp_path / "open.jsonl").open("ab") as file:
        file.write(b'{"number": 3, "ans')
    shards = RecordShards(tmp_path, 9, 4)
    assert [r["number"] for r in shards.records()] == [2]
    shards.add({"number": 3})
    assert [r["number"] for r in RecordShards(tmp_path, 9, 4).records()] == [2, 3]


def test_a_record_is_added_once(tmp_path: Path) -> None:
    shards = RecordShards(tmp_path, 9, 4)
    shards.add({"number": 2})
    with pytest.raises(ValueError, match="there already"):
        shards.add({"number": 2})
    with pytest.raises(ValueError, match="not one of 9"):
        shards.add({"number": 9})


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "00000.jsonl.zst"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError, match="delete it"):
        read_shard(path)
