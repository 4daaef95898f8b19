"""What a router learns from: the hidden state at a root, and each arm's accepted length there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from whiflash.core.errors import ConfigError
from whiflash.routing.replay.turns import Turn
from whiflash.training.data.prompts import HELD_OUT
from whiflash.training.features.store import FeatureStore
from whiflash.training.router.survey import Survey
from whiflash.training.router.texts import is_tuning

_MARGIN = 16
"""Roots nearer to the end of a text are left out: their drafts reach past it."""


@dataclass(frozen=True, slots=True)
class RouterLabels:
    """hidden: float32 [n, h]; gains: float32 [n], accepted length of the positive arm minus that
    of the negative one; lengths: float32 [n, 2], both; is_held_out, is_tuning: bool [n]."""

    hidden: torch.Tensor
    lengths: torch.Tensor
    is_held_out: torch.Tensor
    is_tuning: torch.Tensor

    @property
    def gains(self) -> torch.Tensor:
        return self.lengths[:, 0] - self.lengths[:, 1]

    @property
    def is_learned(self) -> torch.Tensor:
        """bool [n]: neither held out nor kept aside."""
        return ~(self.is_held_out | self.is_tuning)


def router_labels(
    survey: Survey, store: FeatureStore, positive: str, negative: str
) -> RouterLabels:
    """Joins the log with the features. Raises ConfigError where there is nothing to learn from."""
    places = {place.number: place for place in store.texts}
    hidden, lengths, is_held_out, tunes = [], [], [], []
    for number, turn in survey.turns():
        place = places.get(number)
        if place is None:
            continue
        roots = list(_roots(turn, positive, negative, place.num_tokens))
        if not roots:
            continue
        # The signals at a root come from the row that the root was taken from.
        rows = torch.tensor([position - 1 for position, _ in roots])
        hidden.append(store.hidden(place)[rows].float())
        lengths.append(torch.tensor([pair for _, pair in roots]))
        is_held_out.append(torch.full((len(roots),), place.split == HELD_OUT))
        tunes.append(torch.full((len(roots),), is_tuning(number, place.split)))
    if not hidden:
        raise ConfigError(f"the log holds no root where both {positive} and {negative} proposed")
    return RouterLabels(*(torch.cat(part) for part in (hidden, lengths, is_held_out, tunes)))


def _roots(
    turn: Turn, positive: str, negative: str, num_tokens: int
) -> Iterator[tuple[int, tuple[float, float]]]:
    """(position, accepted lengths of both arms)."""
    for position, root in sorted(turn.roots.items()):
        if position + _MARGIN >= num_tokens:
            return
        found = [root.known(arm) for arm in (positive, negative)]
        if found[0] is not None and found[1] is not None:
            one, other = (1.0 + p.accepted(p.nodes) for p in found if p is not None)
            yield position, (one, other)
