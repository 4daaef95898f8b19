"""Prefix reuse: longest common prefix, within a namespace, least recently used out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.engine.prefix import (
    MAX_LOST_TAIL_TOKENS,
    MIN_REUSE_TOKENS,
    PrefixStore,
    common_prefix_tokens,
)


class FakeCache:
    """A cache of which only the length is known."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.is_released = False

    @property
    def num_bytes(self) -> int:
        return 0 if self.is_released else self.length

    def commit(self, rows: object) -> None:
        raise AssertionError("nothing is committed here")

    def truncate(self, length: int) -> None:
        assert length <= self.length
        self.length = length

    def fork(self, length: int) -> FakeCache:
        return FakeCache(length)

    def release(self) -> None:
        self.is_released = True

    def check_integrity(self) -> None:
        assert not self.is_released


def ids(*values: int) -> np.ndarray:
    return np.asarray(values, np.int32)


def numbers(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.int32)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_common_prefix_is_the_longest(a: list[int], b: list[int]) -> None:
    length = common_prefix_tokens(ids(*a), ids(*b))
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


@pytest.fixture
def dropped() -> list[int]:
    """Draft ids whose entries ended."""
    return []


@pytest.fixture
def store(dropped: list[int]) -> PrefixStore:
    return PrefixStore(dropped.append)


def test_the_namespace_is_a_wall(store: PrefixStore) -> None:
    store.keep("a", numbers(40), FakeCache(40), 1)
    assert store.best("a", numbers(50)) is not None
    assert store.best("b", numbers(50)) is None


def test_one_prompt_token_is_always_left_to_run(store: PrefixStore) -> None:
    store.keep("a", numbers(40), FakeCache(40), 1)
    found = store.best("a", numbers(40))
    assert found is not None
    assert found[1] == 39


def test_the_longest_prefix_wins(store: PrefixStore) -> None:
    for length in (20, 60, 40):
        store.keep("a", numbers(length), FakeCache(length), 1)
    found = store.best("a", numbers(100))
    assert found is not None
    assert found[1] == 60


def test_short_prefixes_are_not_worth_it(store: PrefixStore, dropped: list[int]) -> None:
    short = FakeCache(MIN_REUSE_TOKENS - 1)
    store.keep("a", numbers(MIN_REUSE_TOKENS - 1), short, 7)
    assert short.is_released
    assert dropped == [7]
    store.keep("a", numbers(40), FakeCache(40), 1)
    other = np.concatenate([numbers(MIN_REUSE_TOKENS - 1), numbers(30, 100)])
    assert store.best("a", other) is None


def test_a_continued_conversation_takes_the_cache_over(store: PrefixStore) -> None:
    cache = FakeCache(40)
    store.keep("a", numbers(40), cache, 1)
    found = store.best("a", numbers(60))
    assert found is not None
    claimed = store.claim(*found)
    assert claimed.cache is cache
    assert claimed.draft_id == 1
    assert len(store) == 0


def test_a_shared_system_prompt_is_copied(store: PrefixStore) -> None:
    """sglang #32459: reuse in multi-turn traffic must not evict what others still need."""
    length = 40 + MAX_LOST_TAIL_TOKENS + 1
    store.keep("a", numbers(length), FakeCache(length), 1)
    other = np.concatenate([numbers(40), numbers(30, 1000)])
    found = store.best("a", other)
    assert found is not None
    copied = store.claim(*found)
    assert copied.cache.length == 40
    assert copied.draft_id is None
    assert len(store) == 1
    again = store.best("a", numbers(length + 5))
    assert again is not None
    assert again[1] == length


def test_the_least_recently_used_goes_first(store: PrefixStore, dropped: list[int]) -> None:
    caches = [FakeCache(20) for _ in range(3)]
    for number, cache in enumerate(caches):
        store.keep("a", numbers(20, 100 * number), cache, number)
    spared = store.best("a", numbers(30, 0))
    assert spared is not None
    assert store.evict_one(spare=spared[0])
    assert [cache.is_released for cache in caches] == [False, True, False]
    assert dropped == [1]
    store.clear()
    assert sorted(dropped) == [0, 1, 2]
    assert all(cache.is_released for cache in caches)
    assert not store.evict_one()
