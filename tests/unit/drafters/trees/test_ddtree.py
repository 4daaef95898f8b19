"""DDTree's search against brute force over all prefixes, and against the reference's records."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from whiflash.drafters.trees.ddtree import Candidates, Prefixes, most_probable_prefixes

GOLDEN = Path(__file__).parents[3] / "data" / "dflash_tiny"
TOLERANCE = 1e-9


@st.composite
def tables(draw: st.DrawFn) -> Candidates:
    """Up to 4 positions of up to 4 candidates; equal weights and missing candidates included."""
    depth, width = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    weight = st.one_of(
        st.sampled_from([0.0, -0.5, -1.0, -np.inf]), st.floats(-20, 0, allow_nan=False)
    )
    rows = [
        sorted(draw(st.lists(weight, min_size=width, max_size=width)))[::-1] for _ in range(depth)
    ]
    tokens = np.arange(depth * width, dtype=np.int32).reshape(depth, width)
    return Candidates(tokens, np.array(rows, np.float64).reshape(depth, width))


def all_prefixes(candidates: Candidates) -> dict[tuple[int, ...], float]:
    """Log weight of every prefix of probability above 0."""
    found: dict[tuple[int, ...], float] = {}
    depth, width = candidates.tokens.shape
    for length in range(1, depth + 1):
        for ranks in itertools.product(range(width), repeat=length):
            weight = sum(candidates.log_weights[i, rank] for i, rank in enumerate(ranks))
            if weight > -np.inf:
                found[tuple(int(candidates.tokens[i, rank]) for i, rank in enumerate(ranks))] = (
                    float(weight)
                )
    return found


def paths(prefixes: Prefixes) -> list[tuple[int, ...]]:
    of_row: list[tuple[int, ...]] = [()]
    for token, parent in zip(prefixes.tokens.tolist(), prefixes.parents.tolist(), strict=True):
        of_row.append((*of_row[parent], token))
    return of_row[1:]


@settings(max_examples=400, deadline=None)
@given(tables(), st.integers(0, 40))
def test_it_finds_the_most_probable_prefixes(candidates: Candidates, max_nodes: int) -> None:
    prefixes = most_probable_prefixes(candidates, max_nodes)
    expected = all_prefixes(candidates)
    assert len(prefixes) == min(max_nodes, len(expected))
    chosen = paths(prefixes)
    assert len(set(chosen)) == len(chosen)
    best = sorted(expected.values(), reverse=True)[: len(chosen)]
    assert np.allclose([expected[path] for path in chosen], best, atol=TOLERANCE)
    assert np.allclose(prefixes.log_weights, best, atol=TOLERANCE)


@settings(max_examples=200, deadline=None)
@given(tables(), st.integers(0, 40))
def test_it_is_a_well_formed_tree(candidates: Candidates, max_nodes: int) -> None:
    prefixes = most_probable_prefixes(candidates, max_nodes)
    assert (prefixes.parents <= np.arange(len(prefixes))).all()
    assert [len(path) for path in paths(prefixes)] == prefixes.depths.tolist()
    assert np.array_equal(prefixes.tokens, candidates.tokens[prefixes.depths - 1, prefixes.ranks])
    assert (np.diff(prefixes.log_weights) <= 0).all()


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(0, 20), st.integers(0, 20))
def test_a_smaller_budget_gives_the_beginning_of_the_larger_tree(
    candidates: Candidates, small: int, more: int
) -> None:
    few = most_probable_prefixes(candidates, small)
    many = most_probable_prefixes(candidates, small + more)
    assert paths(few) == paths(many)[: len(few)]


@pytest.mark.parametrize(
    ("log_weights", "flaw"),
    [
        ([[0.1, -1.0]], "above 0"),
        ([[-1.0, -0.5]], "not sorted"),
        ([[np.nan, -1.0]], "NaN"),
    ],
)
def test_bad_tables_are_refused(log_weights: list[list[float]], flaw: str) -> None:
    table = Candidates(np.zeros((1, 2), np.int32), np.array(log_weights))
    with pytest.raises(ValueError, match=flaw):
        most_probable_prefixes(table, 3)


def reference_rounds() -> list[tuple[str, int]]:
    return [
        (f"{prompt}.b{budget}.r{number:02d}", budget)
        for prompt in "ABCD"
        for budget in (7, 16)
        for number in (0, 1)
    ]


@pytest.fixture(scope="module")
def records() -> dict[str, np.ndarray]:
    return load_file(GOLDEN / "ddtree.safetensors")


@pytest.mark.parametrize(("name", "budget"), reference_rounds())
def test_it_builds_the_trees_of_the_reference(
    records: dict[str, np.ndarray], name: str, budget: int
) -> None:
    logits = records[f"{name}.draft_logits"].astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    order = np.argsort(-log_probs, axis=-1, kind="stable")[:, :budget]
    table = Candidates(order.astype(np.int32), np.take_along_axis(log_probs, order, -1))
    prefixes = most_probable_prefixes(table, budget)
    assert prefixes.tokens.tolist() == records[f"{name}.node_token_ids"].tolist()
    assert prefixes.depths.tolist() == records[f"{name}.node_depths"].tolist()
    assert [-1, *prefixes.parents.tolist()] == records[f"{name}.parents"].tolist()
    positions = records[f"{name}.verify_position_ids"][0]
    assert (positions[0] + np.array([0, *prefixes.depths])).tolist() == positions.tolist()
    assert np.array_equal(
        ancestors_or_self(prefixes), records[f"{name}.verify_attend"][:, -budget - 1 :]
    )


def ancestors_or_self(prefixes: Prefixes) -> np.ndarray:
    rows = np.eye(len(prefixes) + 1, dtype=bool)
    for node, parent in enumerate(prefixes.parents):
        rows[node + 1] |= rows[parent]
    return rows
