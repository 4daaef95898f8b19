"""Laws of rejection sampling (facts: drafters 4.3), chi-square over 200,000 trials."""

import numpy as np
import pytest
from scipy import stats

from whiflash.sampling.classical import (
    accept,
    draw,
    point_masses,
    residual,
    verify_chain,
    verify_point_siblings,
    verify_siblings,
)

N, V = 200_000, 6
P1 = np.array([0.35, 0.05, 0.0, 0.3, 0.2, 0.1])
P2 = np.random.default_rng(1).dirichlet(np.ones(V), V)
P2[:, 5] = 0
P2 /= P2.sum(-1, keepdims=True)
LAWS = {
    "q = p": P1,
    "disjoint": np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
    "uniform": np.full(V, 1 / V),
    "reduced vocabulary": np.array([0.0, 0.7, 0.3, 0.0, 0.0, 0.0]),
    "point mass": np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
    "bad": np.array([0.01, 0.9, 0.05, 0.01, 0.01, 0.02]),
}


def _assert_law(tokens: np.ndarray, p: np.ndarray) -> None:
    counts = np.bincount(tokens, minlength=V)
    assert counts[p == 0].sum() == 0, "an id of probability zero was emitted"
    assert stats.chisquare(counts[p > 0], counts.sum() * p[p > 0]).pvalue > 1e-4


def _rows(p: np.ndarray) -> np.ndarray:
    return np.broadcast_to(p, (N, V))


def _chain(q: np.ndarray, q_next: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two drafted tokens, the second one independent of the first (a block marginal)."""
    rng = np.random.default_rng(2)
    draft = np.stack([draw(_rows(q), rng), draw(_rows(q_next), rng)], 1)
    p = np.stack([_rows(P1), P2[draft[:, 0]], P2[draft[:, 1]]], 1)
    laws = np.stack([_rows(q), _rows(q_next)], 1)
    return p, laws, draft


@pytest.mark.parametrize("kind", list(LAWS))
def test_first_token_and_pair_law_of_chains(kind: str) -> None:
    rng = np.random.default_rng(3)
    p, q, draft = _chain(LAWS[kind], LAWS["uniform"])
    result = verify_chain(p, q, draft, rng)
    first = np.where(result.accepted > 0, draft[:, 0], result.token)
    _assert_law(first, P1)
    second = np.where(result.accepted > 1, draft[:, 1], result.token)
    has_second = result.accepted >= 1
    second[~has_second] = draw(P2[first[~has_second]], rng)  # the next round's first token
    for stratum in (has_second, ~has_second):
        for token in np.unique(first[stratum]):
            _assert_law(second[stratum & (first == token)], P2[token])
    expected = np.minimum(P1, LAWS[kind]).sum()
    assert abs((result.accepted >= 1).mean() - expected) < 4 * 0.5 / np.sqrt(N)


def test_perfect_drafts_are_always_accepted() -> None:
    p, q, draft = _chain(P1, LAWS["uniform"])
    q[:, 1] = p[:, 1]
    draft[:, 1] = draw(p[:, 1], np.random.default_rng(7))
    p[:, 2] = P2[draft[:, 1]]
    result = verify_chain(p, q, draft, np.random.default_rng(4))
    assert (result.accepted == 2).all()


def test_point_masses_accept_with_p_and_zero_the_rejected_token() -> None:
    p, _, draft = _chain(LAWS["point mass"], LAWS["disjoint"])
    result = verify_chain(p, point_masses(draft, V), draft, np.random.default_rng(5))
    assert abs((result.accepted >= 1).mean() - P1[3]) < 4 * 0.5 / np.sqrt(N)
    rejected = result.accepted == 0
    assert (result.token[rejected] != 3).all()
    _assert_law(np.where(rejected, result.token, 3), P1)


@pytest.mark.parametrize("kind", list(LAWS))
@pytest.mark.parametrize("is_replaced", [True, False])
def test_siblings_drawn_from_q(kind: str, is_replaced: bool) -> None:
    rng = np.random.default_rng(6)
    q = LAWS[kind].copy()
    num_siblings = 3 if is_replaced else min(3, int((q > 0).sum()))
    law, columns = np.tile(q, (N, 1)), []
    for _ in range(num_siblings):
        columns.append(draw(law, rng))
        if not is_replaced:
            law[np.arange(N), columns[-1]] = 0
    siblings = np.stack(columns, 1)
    result = verify_siblings(_rows(P1), _rows(q), siblings, rng, is_replaced)
    _assert_law(result.token, P1)
    is_hit = result.child >= 0
    assert (siblings[is_hit, result.child[is_hit]] == result.token[is_hit]).all()
    if kind == "q = p":
        assert is_hit.all()


def test_point_siblings_are_accepted_with_their_sum_of_p() -> None:
    siblings = np.broadcast_to(np.array([3, 2, 1]), (N, 3))
    result = verify_point_siblings(_rows(P1), siblings, np.random.default_rng(8))
    _assert_law(result.token, P1)
    assert abs((result.child >= 0).mean() - P1[[3, 2, 1]].sum()) < 4 * 0.5 / np.sqrt(N)


def test_residual_is_a_law_and_zero_where_q_exceeds_p() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(V), 1000), rng.dirichlet(np.ones(V), 1000)
    rest = residual(p, q)
    assert (rest >= 0).all()
    np.testing.assert_allclose(rest.sum(-1), 1)
    assert (rest[q >= p] == 0).all()
    assert np.array_equal(residual(p, p), p)


class _Edge(np.random.Generator):
    """Uniforms at the very ends of their range."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self._value = value

    def random(self, size):  # type: ignore[no-untyped-def, override]
        return np.full(size, self._value)


@pytest.mark.parametrize("value", [0.0, 1 - 2.0**-53])
def test_zero_probability_is_never_emitted_at_the_ends_of_the_uniform(value: float) -> None:
    """sglang #35771: u = 0 must not accept p = 0."""
    rng = _Edge(value)
    p = np.array([[0.0, 0.25, 0.0, 0.75, 0.0], [1e-300, 0.0, 0.0, 0.0, 0.0]])
    assert (p[np.arange(2), draw(p, rng)] > 0).all()
    assert not accept(np.zeros(3), np.array([0.0, 0.5, 1.0]), rng).any()
