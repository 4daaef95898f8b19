"""What heads are worth on texts that they did not learn from, and how far they can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whiflash.routing.heads import SurvivalHeads
from whiflash.training.router.samples import HeadSamples

NUM_BINS = 10
Floats = npt.NDArray[np.float64]
Row = dict[str, Any]


def head_report(heads: SurvivalHeads, samples: HeadSamples) -> Row:
    """JSON-able, on the held-out roots of `samples`. Per arm: `accepted_length` and what was
    `expected`, over roots whose drafts are known to the end; `explained`, the share of the variance
    of the accepted length; `error` in nats a node, against `error_of_rates`, that of the other
    roots' mean by rank; `reliability`, a row per tenth of what the head says (mean, share that came
    true, nodes); `claims`, the same of the drafts' own survival, and of it `calibrated`."""
    held_out = samples.of(samples.is_held_out)
    hidden = held_out.hidden.numpy() - heads.hidden_mean
    logits = heads.logits(hidden, held_out.signals.numpy())
    others = samples.of(~samples.is_held_out)
    table: Row = {"roots": len(samples), "held_out_roots": len(held_out), "arms": {}}
    for place, arm in enumerate(heads.arms):
        known = held_out.is_known[:, place].numpy()
        claims = held_out.claims[:, place].double().numpy()
        hits = held_out.hits[:, place].double().numpy()
        places = np.full(len(held_out), place)
        odds = heads.survival(logits[:, place], places, claims)
        if known.any():
            table["arms"][arm.arm] = _arm(odds, hits, known, _rates(others, place)) | {
                "claims": reliability(claims[known & (claims > 0)], hits[known & (claims > 0)]),
                "calibrated": reliability(
                    heads.calibrated(arm.arm, claims[known & (claims > 0)]),
                    hits[known & (claims > 0)],
                ),
            }
    return table


def _rates(samples: HeadSamples, place: int) -> Floats:
    """float64 [R]: share of the known nodes of each rank that came true."""
    known = samples.is_known[:, place].double().numpy()
    hits = samples.hits[:, place].double().numpy() * known
    rates: Floats = hits.sum(axis=0) / np.maximum(known.sum(axis=0), 1.0)
    return rates


def _arm(odds: Floats, hits: Floats, known: npt.NDArray[np.bool_], rates: Floats) -> Row:
    whole = known[:, 0]
    length = 1.0 + (hits * known)[whole].sum(axis=1)
    expected = 1.0 + (odds * known)[whole].sum(axis=1)
    spread = max(float(length.var()), 1e-9)
    return {
        "accepted_length": round(float(length.mean()), 3),
        "expected": round(float(expected.mean()), 3),
        "explained": round(1.0 - float(((length - expected) ** 2).mean()) / spread, 4),
        "error": round(_nats(odds, hits, known), 4),
        "error_of_rates": round(_nats(np.broadcast_to(rates, odds.shape), hits, known), 4),
        "reliability": reliability(odds[known], hits[known]),
    }


def _nats(odds: Floats, hits: Floats, known: npt.NDArray[np.bool_]) -> float:
    kept = np.clip(odds[known], 1e-6, 1.0 - 1e-6)
    truth = hits[known]
    return float(-(truth * np.log(kept) + (1.0 - truth) * np.log(1.0 - kept)).mean())


def reliability(said: Floats, hits: Floats) -> list[Row]:
    """Per tenth of what was said, where there is any: mean said, share that came true, nodes."""
    bins = np.minimum((said * NUM_BINS).astype(int), NUM_BINS - 1)
    rows = []
    for number in range(NUM_BINS):
        mask = bins == number
        if mask.any():
            rows.append({"said": round(float(said[mask].mean()), 4),
                         "true": round(float(hits[mask].mean()), 4),
                         "nodes": int(mask.sum())})  # fmt: skip
    return rows
