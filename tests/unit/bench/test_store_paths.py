"""What suite `store` measures of logs, on small ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from whiflash.bench.redis_process import RedisAddress, redis_server
from whiflash.bench.store_paths import (
    TURN_TOKENS,
    agent_like,
    append_to_visible,
    loading_rows,
    visible_rows,
)
from whiflash.bench.store_suite import loading_table, visible_table
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.toy import toy_tokenizer
from whiflash.trajectories.memory_log import MemoryLog


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisAddress]:
    with redis_server() as address:
        if address is None:
            pytest.skip("redis-server is missing; install the package redis-server")
        yield address


def test_text_of_agents_repeats_itself_and_is_always_the_same() -> None:
    text = agent_like(50_000)
    assert (len(text), text.dtype) == (50_000, np.int32)
    assert np.array_equal(text, agent_like(50_000))
    assert not np.array_equal(text, agent_like(50_000, seed=1))
    grams = np.lib.stride_tricks.sliding_window_view(text, 8)
    share = len(np.unique(grams, axis=0)) / len(grams)
    assert 0.2 < share < 0.9, "neither noise nor one phrase"


def test_every_turn_is_waited_for() -> None:
    log = MemoryLog()
    waits = append_to_visible(log, log, 5)
    assert len(waits) == 5
    assert waits == sorted(waits)
    assert 0 < waits[0] < 1000
    log.close()


def test_rows_of_visibility(redis: RedisAddress) -> None:
    rows = visible_rows(HFTokenizer(toy_tokenizer()), redis, 4)
    assert [row["turns"] for row in rows] == [4, 4, 4]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert visible_table(rows).rows == tuple(rows)


def test_rows_of_loading(redis: RedisAddress) -> None:
    files, again, shared = rows = loading_rows(redis, 40 * TURN_TOKENS * 8)
    for row in rows:
        assert row["rate"] == pytest.approx(row["tokens"] / row["load_s"])
        assert row["live_bytes"] > 8
        assert row["sealed_bytes"] is None, "so few stay in the live tier"
    assert 1 < files["stored_bytes"] < 4, "varints and a header, over short records"
    assert again["stored_bytes"] is None
    assert 1 < shared["stored_bytes"] < 20
    assert loading_table(rows).rows == tuple(rows)


def test_without_redis_its_rows_are_left_out() -> None:
    rows = loading_rows(None, 4096)
    assert [row["store"] for row in rows] == ["file", "file, sealed before"]
