"""Classical rejection sampling: the yardstick for the drafter-invariant rule. Pure functions.

Leviathan et al. 2023 and Chen et al. 2023 for chains, SpecInfer (Miao et al. 2024) for siblings.
p is the target's distribution after the full pipeline, q the one that a draft was really drawn
from. All functions work on N independent trials at once; V is the vocabulary size, K the length
of the draft.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Probs = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChainResult:
    """accepted: int [N], draft tokens kept; token: int [N], the target's own token behind them."""

    accepted: Ids
    token: Ids


def draw(p: Probs, rng: np.random.Generator) -> Ids:
    """One id per row of p [N, V] (rows need not sum to 1). Never an id with p = 0."""
    sums = np.cumsum(p, axis=-1)
    levels = rng.random(len(p)) * sums[:, -1]
    picked = (sums <= levels[:, None]).sum(-1)
    last = p.shape[-1] - 1 - np.argmax(p[:, ::-1] > 0, axis=-1)
    picked_ids: Ids = np.minimum(picked, last).astype(np.int64)
    return picked_ids


def residual(p: Probs, q: Probs) -> Probs:
    """norm(max(p - q, 0)) per row of [N, V]; p itself where nothing is left, which only rounding
    can cause."""
    rest = np.maximum(p - q, 0.0)
    mass = rest.sum(-1, keepdims=True)
    return np.where(mass > 0, rest / np.where(mass > 0, mass, 1.0), p)


def accept(p_of_draft: Probs, q_of_draft: Probs, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """bool, elementwise: accepted with probability min(1, p / q), never where p = 0."""
    return rng.random(p_of_draft.shape) * q_of_draft < p_of_draft


def verify_chain(p: Probs, q: Probs, draft: Ids, rng: np.random.Generator) -> ChainResult:
    """Chains whose token i was drawn from q[:, i] given the accepted prefix.

    p: [N, K + 1, V], rows on the draft's own path; q: [N, K, V]; draft: [N, K]. Exact for
    autoregressive drafts and for block marginals, where q[:, i] does not depend on earlier tokens.
    """
    num_trials, num_drafted = draft.shape
    index = draft[..., None]
    p_of = np.take_along_axis(p[:, :-1], index, -1)[..., 0]
    q_of = np.take_along_axis(q, index, -1)[..., 0]
    accepted = np.cumprod(accept(p_of, q_of, rng), axis=-1).sum(-1)
    trials = np.arange(num_trials)
    q_at = np.concatenate([q, np.zeros_like(p[:, :1])], axis=1)[trials, accepted]
    p_at = p[trials, accepted]
    is_whole = (accepted == num_drafted)[:, None]
    final = np.where(is_whole, p_at, residual(p_at, q_at))
    return ChainResult(accepted.astype(np.int64), draw(final, rng))


def point_masses(draft: Ids, vocab_size: int) -> Probs:
    """q of a deterministic draft: one-hot [N, K, V]. Deterministic means: a function of the
    prefix, independent of the random numbers of the verification."""
    return np.eye(vocab_size)[draft]


@dataclass(frozen=True, slots=True)
class SiblingResult:
    """child: int [N], the accepted sibling or -1; token: int [N], the token emitted."""

    child: Ids
    token: Ids


def verify_siblings(
    p: Probs, q: Probs, siblings: Ids, rng: np.random.Generator, is_replaced: bool
) -> SiblingResult:
    """One node's children, tested in their order (multi-round rejection).

    p, q: [N, V]; siblings: [N, C], drawn from q one after another, with replacement or, if not
    `is_replaced`, without (each from q less the earlier ones, renormalised). Siblings that were
    not drawn at random, such as the top k of q, belong to `verify_point_siblings`.
    """
    trials = np.arange(len(p))
    left, law = p.copy(), q.copy()
    child = np.full(len(p), -1, np.int64)
    for place in range(siblings.shape[1]):
        tested = siblings[:, place]
        is_hit = accept(left[trials, tested], law[trials, tested], rng) & (child < 0)
        child[is_hit] = place
        is_open = child < 0
        left[is_open] = residual(left[is_open], law[is_open])
        if not is_replaced:
            law[trials, tested] = 0.0
            mass = law.sum(-1, keepdims=True)
            law /= np.where(mass > 0, mass, 1.0)
    own = draw(left, rng)
    return SiblingResult(child, np.where(child >= 0, siblings[trials, child], own))


def verify_point_siblings(p: Probs, siblings: Ids, rng: np.random.Generator) -> SiblingResult:
    """Distinct deterministic children [N, C] of one node: sample y from p [N, V], descend to the
    child that holds y if there is one."""
    token = draw(p, rng)
    is_hit = siblings == token[:, None]
    child = np.where(is_hit.any(-1), is_hit.argmax(-1), -1)
    return SiblingResult(child.astype(np.int64), token)
