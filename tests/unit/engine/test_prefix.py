"""Prefix reuse: longest common prefix, within a namespace, least recently used out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash.engine.parking import PARK_SECONDS, Parking
from whiflash.engine.prefix import MAX_LOST_TAIL_TOKENS, MIN_REUSE_TOKENS, PrefixStore
from whiflash.engine.prefix_entry import common_prefix_tokens


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

    def fused_taps(self, weight_hash: str, start: int, stop: int) -> torch.Tensor:
        raise AssertionError(f"no taps of {weight_hash} from {start} to {stop} are kept here")

    def taps_from(self, weight_hash: str) -> int:
        return 0

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


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dropped() -> list[int]:
    """Draft ids whose entries ended."""
    return []


@pytest.fixture
def store(dropped: list[int], clock: Clock) -> PrefixStore:
    return PrefixStore(dropped.append, Parking(100, clock))


def keep(
    store: PrefixStore, held: np.ndarray, num_prompt: int, draft_id: int = 1, parks: bool = False
) -> FakeCache:
    cache = FakeCache(len(held))
    store.keep("a", held, num_prompt, cache, draft_id, parks)
    return cache


def claim(store: PrefixStore, prompt: np.ndarray) -> tuple[str, int]:
    """How the store would serve a prompt, and how much of it."""
    found = store.best("a", prompt)
    assert found is not None
    entry, common = found
    return "take over" if store.goes_on(entry, common, len(prompt)) else "copy", common


def test_the_namespace_is_a_wall(store: PrefixStore) -> None:
    keep(store, numbers(40), 30)
    assert store.best("a", numbers(50)) is not None
    assert store.best("b", numbers(50)) is None


def test_one_prompt_token_is_always_left_to_run(store: PrefixStore) -> None:
    keep(store, numbers(40), 30)
    found = store.best("a", numbers(40))
    assert found is not None
    assert found[1] == 39


def test_the_longest_prefix_wins(store: PrefixStore) -> None:
    for length in (20, 60, 40):
        keep(store, numbers(length), 10)
    found = store.best("a", numbers(100))
    assert found is not None
    assert found[1] == 60


def test_short_prefixes_are_not_worth_it(store: PrefixStore, dropped: list[int]) -> None:
    short = keep(store, numbers(MIN_REUSE_TOKENS - 1), 5, draft_id=7)
    assert short.is_released
    assert dropped == [7]
    keep(store, numbers(40), 30)
    other = np.concatenate([numbers(MIN_REUSE_TOKENS - 1), numbers(30, 100)])
    assert store.best("a", other) is None


def test_a_continued_conversation_takes_the_cache_over(store: PrefixStore) -> None:
    cache = keep(store, numbers(40), 30)
    found = store.best("a", numbers(60))
    assert found is not None
    assert store.goes_on(*found, 60)
    assert store.take_over(*found) is cache
    assert len(store) == 0


def test_a_shared_system_prompt_is_copied(store: PrefixStore) -> None:
    """sglang #32459: reuse in multi-turn traffic must not evict what others still need."""
    length = 40 + MAX_LOST_TAIL_TOKENS + 1
    keep(store, numbers(length), 60)
    other = np.concatenate([numbers(40), numbers(30, 1000)])
    found = store.best("a", other)
    assert found is not None
    assert not store.goes_on(*found, len(other))
    assert store.copy(*found).length == 40
    assert claim(store, numbers(length + 5)) == ("take over", length)


def test_a_turn_whose_reasoning_the_template_cuts_goes_on(store: PrefixStore) -> None:
    """sglang #32459: the next prompt shares the whole prompt, then the answer is written anew
    without its long reasoning. The old tail serves nobody: cut, not copied."""
    keep(store, numbers(400), 100)
    cut = np.concatenate([numbers(100), numbers(60, 1000)])
    assert claim(store, cut) == ("take over", 100)
    header = np.concatenate([numbers(96), numbers(60, 1000)])
    assert claim(store, header) == ("take over", 96)


def test_another_question_and_the_same_question_again_are_copied(store: PrefixStore) -> None:
    keep(store, numbers(400), 100)
    other = np.concatenate([numbers(95), numbers(60, 1000)])
    assert claim(store, other) == ("copy", 95)
    assert claim(store, numbers(100)) == ("copy", 99)


def test_among_equals_the_turn_that_goes_on_is_taken(store: PrefixStore) -> None:
    keep(store, np.concatenate([numbers(100), numbers(200, 5000)]), 250)
    fresh = keep(store, np.concatenate([numbers(100), numbers(200, 7000)]), 100)
    keep(store, np.concatenate([numbers(100), numbers(200, 9000)]), 250)
    found = store.best("a", np.concatenate([numbers(100), numbers(60, 1000)]))
    assert found is not None
    assert found[0].cache is fresh


def test_the_least_recently_used_goes_first(store: PrefixStore, dropped: list[int]) -> None:
    caches = [keep(store, numbers(20, 100 * number), 20, number) for number in range(3)]
    spared = store.best("a", numbers(30, 0))
    assert spared is not None
    assert store.evict_one(spare=spared[0])
    assert [cache.is_released for cache in caches] == [False, True, False]
    assert dropped == [1]
    store.clear()
    assert sorted(dropped) == [0, 1, 2]
    assert all(cache.is_released for cache in caches)
    assert not store.evict_one()


def test_parked_turns_outlast_plain_ones_until_their_time_is_up(
    store: PrefixStore, clock: Clock
) -> None:
    first = keep(store, numbers(20, 0), 20, parks=True)
    clock.now_s += 1
    second = keep(store, numbers(20, 100), 20, parks=True)
    plain = [keep(store, numbers(20, 200 + 100 * n), 20) for n in range(2)]
    assert store.num_parked == 2
    for number, expected in enumerate((*plain, first)):
        assert [cache.is_released for cache in (*plain, first)].count(True) == number
        assert store.evict_one()
        assert expected.is_released
    later = keep(store, numbers(20, 400), 20)
    clock.now_s += PARK_SECONDS
    assert store.num_parked == 0
    assert store.evict_one()
    assert (second.is_released, later.is_released) == (True, False)


def test_a_parked_turn_is_taken_over_by_its_next_turn_alone(store: PrefixStore) -> None:
    keep(store, numbers(60), 50, parks=True)
    assert claim(store, np.concatenate([numbers(40), numbers(30, 1000)])) == ("copy", 40)
    assert claim(store, numbers(50)) == ("copy", 49)
    assert claim(store, numbers(90)) == ("take over", 60)


def test_a_namespace_parks_within_its_share(store: PrefixStore) -> None:
    """The share is 100 here: the turn parked first becomes a plain entry, nothing is evicted."""
    keep(store, numbers(60, 0), 50, parks=True)
    keep(store, numbers(40, 100), 30, parks=True)
    assert store.num_parked == 2
    store.keep("b", numbers(90), 80, FakeCache(90), 9, parks=True)
    assert store.num_parked == 3
    keep(store, numbers(50, 200), 40, parks=True)
    store.check_integrity()
    assert store.num_parked == 3
    keep(store, numbers(101, 400), 40, parks=True)
    assert store.num_parked == 3
    assert len(store) == 5


def test_lost_reuse_is_told_from_new_text(store: PrefixStore) -> None:
    keep(store, numbers(40), 30)
    store.evict_one()
    assert store.evicted_tokens("a", numbers(50)) == 40
    assert store.evicted_tokens("b", numbers(50)) == 0
