"""Timing isolation on a toy engine: nothing to see in another namespace, everything in the leak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.bench.isolation import IsolationProbe, auc, isolation_table
from whiflash.engine.engine import Engine
from whiflash.testing.toy import write_toy

NUMBERS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(NUMBERS, NUMBERS)
def test_auc_is_a_probability_and_the_rest_of_its_mirror(
    lower: list[int], higher: list[int]
) -> None:
    assert 0 <= auc(lower, higher) <= 1
    assert auc(lower, higher) == pytest.approx(1 - auc(higher, lower))
    assert auc(lower, lower) == pytest.approx(0.5)


def test_auc_of_what_can_be_told_apart() -> None:
    assert auc([1, 2], [3, 4]) == 1.0
    assert auc([3, 4], [1, 2]) == 0.0
    assert auc([1, 3], [2, 4]) == 0.75


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        model = str(write_toy(tmp_path_factory.mktemp("toy")))
        with Engine(model=model, dtype="float64", plain_share=0.0) as opened:
            yield opened


def test_rounds_tell_nothing_across_namespaces_and_all_within_one(engine: Engine) -> None:
    """In pairs: the leak must show, or the first half would say nothing."""
    probe = IsolationProbe(engine, lambda text: text, 60)
    hit, miss = probe.samples(3, is_leaky=False)
    assert [one.rounds for one in hit] == [one.rounds for one in miss]
    hit, miss = probe.samples(3, is_leaky=True)
    assert all(one.rounds * 2 < other.rounds for one, other in zip(hit, miss, strict=True))


def test_the_table_has_the_product_and_the_leak(engine: Engine) -> None:
    own, leak = isolation_table(engine, lambda text: text, 2, 60).rows
    assert own["auc_rounds"] == 0.5
    assert leak["auc_rounds"] == 1.0
    assert leak["hit_rounds"] < leak["miss_rounds"] == own["hit_rounds"]
