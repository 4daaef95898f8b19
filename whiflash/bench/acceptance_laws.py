"""How likely a drafted token is accepted at one position, by exact formulas from both
distributions (design.md 5; facts on the laws: docs/lossless.md)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Probs = npt.NDArray[np.float64]


def softmax(logits: npt.NDArray[np.floating], temperature: float) -> Probs:
    """float64 [V] of [V]; -inf stays out. Raises ValueError on NaN or where all is -inf."""
    z = logits.astype(np.float64) / temperature
    peak = z.max()
    if not np.isfinite(peak):
        raise ValueError("logits without a finite largest one")
    weights = np.exp(z - peak)
    return np.asarray(weights / weights.sum(), np.float64)


def classical(p: Probs, q: Probs) -> float:
    """Speculative sampling (Leviathan et al. 2023): the draft is a sample of q."""
    return float(np.minimum(p, q).sum())


def shared_noise(p: Probs, q: Probs) -> float:
    """Both take the argmax of log-probability plus the same Gumbel noise, as our target and
    drafters do: sum over i of 1 / sum over j of max(p_j / p_i, q_j / q_i) (the coupling of
    Daliri et al., arXiv 2408.07978).

    max takes the second where q_j / p_j exceeds q_i / p_i, so ids in order of that ratio need two
    running sums alone.
    """
    held = (p > 0) | (q > 0)
    own, other = p[held], q[held]
    with np.errstate(divide="ignore"):
        ratio = other / own
    order = np.argsort(ratio, kind="stable")
    own, other = own[order], other[order]
    below = np.cumsum(own)
    above = np.maximum(other[::-1].cumsum()[::-1] - other, 0.0)
    both = (own > 0) & (other > 0)
    sums = below[both] / own[both] + above[both] / other[both]
    return float((1.0 / sums).sum())


def point_mass(p: Probs, q: Probs) -> float:
    """The draft is q's most likely id, whatever the noise."""
    return float(p[int(np.argmax(q))])
