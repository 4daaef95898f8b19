"""EAGLE-2 and TALON against what their rules say, node by node."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.drafters.survival import ScoredNodes
from whiflash.drafters.trees.ddtree import Candidates
from whiflash.drafters.trees.eagle2 import Eagle2Growth
from whiflash.drafters.trees.growth import Growth
from whiflash.drafters.trees.talon import TalonGrowth

Path = tuple[int, ...]
VOCAB = 50


def law(path: Path, top_k: int, sharpness: float) -> list[tuple[int, float]]:
    """The `top_k` best (token, log-probability) behind a path, fixed by the path alone."""
    z = sharpness * np.random.default_rng([*path, 7]).normal(size=VOCAB)
    logs = z - np.log(np.exp(z).sum())
    order = np.argsort(-logs, kind="stable")[:top_k]
    return [(int(token), float(logs[token])) for token in order]


def grown(growth: Growth, sharpness: float) -> tuple[ScoredNodes, list[list[Path]]]:
    """Runs a growth to its end. Returns its nodes and the beams' paths."""
    beams: list[list[Path]] = [[()]]
    for _ in range(100):
        rows = [law(path, growth.num_candidates, sharpness) for path in beams[-1]]
        table = np.array(rows)
        candidates = Candidates(table[..., 0].astype(np.int32), table[..., 1])
        beam = growth.grow(candidates)
        if beam is None:
            return growth.nodes(), beams
        pairs = zip(beam.parents.tolist(), beam.tokens.tolist(), strict=True)
        beams.append([(*beams[-1][parent], token) for parent, token in pairs])
    raise AssertionError("growth did not end")


def paths_of(nodes: ScoredNodes) -> list[Path]:
    tree = DraftTree(nodes.tokens, nodes.parents, nodes.depths, np.ones(len(nodes), np.float32))
    assert tree.flaw() is None
    paths = [tuple(tree.path_tokens(row)) for row in range(1, len(tree) + 1)]
    assert len(set(paths)) == len(paths)
    return paths


def log_path(path: Path, top_k: int, sharpness: float) -> float:
    steps = (dict(law(path[:i], top_k, sharpness))[path[i]] for i in range(len(path)))
    return sum(steps)


def best(paths: list[Path], count: int, top_k: int, sharpness: float) -> list[Path]:
    return sorted(paths, key=lambda path: -log_path(path, top_k, sharpness))[:count]


def children(paths: list[Path], top_k: int, sharpness: float) -> list[Path]:
    return [(*path, token) for path in paths for token, _ in law(path, top_k, sharpness)]


SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.floats(0.2, 4))


@settings(max_examples=80, deadline=None)
@given(SHAPES)
def test_eagle2_by_its_definition(shape: tuple[int, int, int, float]) -> None:
    max_nodes, max_depth, top_k, sharpness = shape
    nodes, beams = grown(Eagle2Growth(max_nodes, max_depth, top_k), sharpness)
    pool: list[Path] = []
    beam: list[Path] = [()]
    for level in range(max_depth):
        assert set(beams[level]) == set(beam)
        level_paths = children(beam, top_k, sharpness)
        pool += level_paths
        beam = best(level_paths, top_k, top_k, sharpness)
    assert len(beams) == max_depth
    assert set(paths_of(nodes)) == set(best(pool, max_nodes, top_k, sharpness))


@settings(max_examples=80, deadline=None)
@given(SHAPES, st.floats(0.01, 1))
def test_talon_by_its_definition(shape: tuple[int, int, int, float], mu: float) -> None:
    max_nodes, max_depth, top_k, sharpness = shape
    nodes, beams = grown(TalonGrowth(max_nodes, max_depth, top_k, mu), sharpness)
    kept = [best(children([()], top_k, sharpness), max_nodes, top_k, sharpness)]
    while len(kept) < max_depth and sum(map(len, kept)) < max_nodes:
        level = children(kept[-1], top_k, sharpness)
        chances = {path: math.exp(log_path(path, top_k, sharpness)) for path in level}
        gated = [p for p in level if chances[p] >= mu * max(chances.values()) * (1 - 1e-12)]
        kept.append(best(gated, max_nodes - sum(map(len, kept)), top_k, sharpness))
    assert set(paths_of(nodes)) == {path for level in kept for path in level}
    assert [set(beam) for beam in beams[1:]] == [set(level) for level in kept[:-1]]


def test_talon_goes_deep_where_the_drafter_is_sure_and_wide_where_it_is_not() -> None:
    sure, _ = grown(TalonGrowth(24, 20, 4, 0.03), sharpness=40.0)
    unsure, _ = grown(TalonGrowth(24, 20, 4, 0.03), sharpness=0.5)
    assert sure.depths.max() > 2 * unsure.depths.max()
    assert np.bincount(unsure.depths)[2] > np.bincount(sure.depths)[2]


@pytest.mark.parametrize(
    "make", [lambda: Eagle2Growth(9, 9, 3), lambda: TalonGrowth(9, 9, 3, 0.03)]
)
def test_what_cannot_be_drawn_ends_growth(make: object) -> None:
    """Filters may leave one candidate, or none at all."""
    growth: Growth = make()  # type: ignore[operator]
    lone = Candidates(np.array([[4, 0, 0]], np.int32), np.array([[-0.1, -np.inf, -np.inf]]))
    none = Candidates(np.array([[0, 0, 0]], np.int32), np.full((1, 3), -np.inf))
    beam = growth.grow(lone)
    assert beam is not None
    assert beam.tokens.tolist() == [4]
    assert growth.grow(none) is None
    nodes = growth.nodes()
    assert (nodes.tokens.tolist(), nodes.parents.tolist()) == ([4], [0])


@pytest.mark.parametrize("top_k", [1, 3])
def test_certain_children_never_displace_their_parents(top_k: int) -> None:
    """A saturated softmax gives log-probability 0: child and parent tie exactly."""
    growth = Eagle2Growth(3, 5, top_k)
    beam_width = 1
    for _ in range(5):
        weights = np.full((beam_width, top_k), -60.0)
        weights[:, 0] = 0.0
        tokens = np.tile(np.arange(top_k, dtype=np.int32), (beam_width, 1))
        beam = growth.grow(Candidates(tokens, weights))
        beam_width = len(beam) if beam is not None else 0
    assert paths_of(growth.nodes()) == [(0,), (0, 0), (0, 0, 0)]
