"""Gate 2 (design.md 5): on a real model a divergence is explained by the logit gap or a fault."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from whiflash.core.params import SamplingParams
from whiflash.core.protocols import ForwardSegment, Target
from whiflash.core.results import Completion
from whiflash.engine.engine import Engine
from whiflash.sampling.noise import derive_key, gumbel_of

EPSILON = {"bfloat16": 1.0, "float16": 0.1, "float32": 2e-3, "float64": 1e-8}
"""Most that two forwards of one row may differ in a logit, by dtype (facts: models, section 7)."""

DRAFT_TOKENS = 8


def require_explained(
    engine: Engine,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    got: Completion,
    twin: Completion,
) -> None:
    """Equal ids, or, only where the plan says `epsilon`, a tie: the two batch shapes are replayed
    at the first difference; their logits must differ by at most epsilon, and the two perturbed
    scores by at most twice that difference. Filters must be off. Raises AssertionError."""
    if got.token_ids == twin.token_ids:
        assert got.text == twin.text
        return
    target = engine.core.target
    at = next(
        i for i, (a, b) in enumerate(zip(got.token_ids, twin.token_ids, strict=False)) if a != b
    )
    where = f"first difference at token {at}: {got.token_ids[at]} instead of {twin.token_ids[at]}"
    assert target.info.exactness == "epsilon", f"the plan says bitwise, yet {where}"
    prefix = [*prompt_ids, *twin.token_ids[:at]]
    alone, verified = _both_shapes(target, prefix, twin.token_ids[at : at + DRAFT_TOKENS])
    moved = float((alone - verified).abs().max())
    assert moved <= EPSILON[target.info.dtype], f"{where}; logits moved by {moved}"
    pair = [got.token_ids[at], twin.token_ids[at]]
    key = derive_key(twin.seed, twin.index, prompt_ids)
    scores = alone[pair].double().numpy() + params.temperature * gumbel_of(key, at, pair)
    gap = abs(float(scores[0] - scores[1]))
    assert gap <= 2 * moved, f"{where}; scores {gap} apart, logits moved by {moved}"


def _both_shapes(
    target: Target, prefix: Sequence[int], draft: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last prefix row's logits when it runs alone, and in front of a draft."""
    cache = target.new_cache(len(prefix) + len(draft))
    ids = np.asarray([*prefix, *draft], np.int64)
    target.forward([ForwardSegment(cache, ids[: len(prefix) - 1], None, 0)])
    cache.commit(range(len(prefix) - 1))
    root = len(prefix) - 1
    alone = target.forward([ForwardSegment(cache, ids[root : root + 1], None, 1)]).logits[0]
    rows = ids[root:]
    verified = target.forward([ForwardSegment(cache, rows, None, len(rows))]).logits[0]
    cache.release()
    return alone.float(), verified.float()
