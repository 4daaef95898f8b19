"""The EAGLE reference's own acceptance at temperature > 0, replayed with our classical rule.

Records: tests/data/eagle3_tiny/README.md, `sampling_verify`. A sibling is a point mass: accepted
with probability p(x); after a rejection p(x) is 0 and the rest renormalised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from whiflash.sampling.classical import accept, residual

RECORDS = Path(__file__).parents[2] / "data" / "eagle3_tiny" / "sampling_verify.safetensors"
# temperature, top_p, top_k (0: off); the reference applies them in this order.
SETTINGS = {"t08": (0.8, 1.0, 0), "t10_p09": (1.0, 0.9, 0), "t07_k20_p095": (0.7, 0.95, 20)}


class Recorded:
    """A stand-in for a generator that hands out the recorded draws in order."""

    def __init__(self, draws: np.ndarray) -> None:
        self._left = list(draws)

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.array([self._left.pop(0)]).reshape(shape)

    @property
    def is_used_up(self) -> bool:
        return not self._left


def law(logits: np.ndarray, temperature: float, top_p: float, top_k: int) -> np.ndarray:
    z = logits.astype(np.float64) / temperature
    p = np.exp(z - z.max())
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p * p.sum()]] = 0.0
    if top_k:
        p[order[top_k:]] = 0.0
    return p / p.sum()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("verification", ["v0", "v1"])
def test_our_rule_accepts_what_the_reference_accepted(setting: str, verification: str) -> None:
    prefix = f"{setting}.{verification}."
    record = {
        name.removeprefix(prefix): array
        for name, array in load_file(RECORDS).items()
        if name.startswith(prefix)
    }
    paths, candidates = record["retrieve_indices"], record["candidates"]
    draws = Recorded(record["uniforms"])
    node, depth = 0, 0
    alive = np.ones(len(paths), bool)
    while True:
        p = law(record["node_logits"][node], *SETTINGS[setting])[None]
        depth += 1
        found = None
        if depth < paths.shape[1]:
            for token in dict.fromkeys(candidates[alive, depth].tolist()):
                if token < 0:
                    continue
                if accept(p[:, token], np.ones(1), draws)[0]:  # type: ignore[arg-type]
                    found = token
                    break
                p = residual(p, np.eye(p.shape[1])[[token]])
        if found is None:
            break
        alive &= candidates[:, depth] == found
        node = int(paths[alive][0, depth])
    assert draws.is_used_up
    assert depth - 1 == int(record["accept_len"])
    assert alive[int(record["best_candidate"])]
    np.testing.assert_allclose(p[0], record["bonus_probs"], atol=1e-5)
