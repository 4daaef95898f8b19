"""The id that stands for "not drafted yet"."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from whiflash.core.errors import ConfigError
from whiflash.training.features.facts import TargetFacts


def choose_mask_id(texts: Iterable[torch.Tensor], facts: TargetFacts, asked: int | None) -> int:
    """`asked`, or the last special id that no text holds. Raises ConfigError if there is none, or
    if `asked` is beyond the embedding."""
    if asked is not None:
        if not 0 <= asked < facts.vocab_size:
            raise ConfigError(f"mask id {asked} is beyond the {facts.vocab_size} ids")
        return asked
    used: set[int] = set()
    for text in texts:
        used.update(torch.unique(text).tolist())
    free = [i for i in facts.special_ids[1:] if i not in used]
    if not free:
        raise ConfigError("the texts use all special ids; name an unused id with --mask-id")
    return free[-1]
