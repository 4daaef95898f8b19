"""What the heads of `goodput` learn from: roots of logged texts, as a server comes to them.

A server sees an arm's recent outcomes only where that arm was verified. So each text is walked a
few times with arms taken at random for a while, and a root's recent rates are those of its walk;
at every root that a walk comes to, all arms' drafts are known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, RouteRow
from whiflash.routing.heads import NUM_RANKS, HeadArm, signals_of, steps_of
from whiflash.routing.recent import RecentRates
from whiflash.routing.replay.turns import Proposal, Root, Turn
from whiflash.training.data.prompts import HELD_OUT
from whiflash.training.features.store import FeatureStore, TextPlace
from whiflash.training.router.texts import is_tuning

NUM_WALKS = 3
_STAY_ROUNDS = 6.0


@dataclass(frozen=True, slots=True)
class HeadSamples:
    """hidden: float32 [n, h]; signals: [n, s]; steps: [n, A, R], logit of what the draft claims of
    each step; claims and hits: [n, A, R], claimed survival by rank and whether that node came true;
    is_known: bool [n, A, R], whether the text says so; is_held_out, is_tuning: bool [n]."""

    hidden: torch.Tensor
    signals: torch.Tensor
    steps: torch.Tensor
    claims: torch.Tensor
    hits: torch.Tensor
    is_known: torch.Tensor
    is_held_out: torch.Tensor
    is_tuning: torch.Tensor

    def __len__(self) -> int:
        return len(self.hidden)

    def of(self, rows: torch.Tensor) -> HeadSamples:
        """Those of a mask or of row numbers."""
        return HeadSamples(*(getattr(self, field.name)[rows] for field in fields(self)))


def head_samples(
    turns: Iterable[tuple[int, Turn]], store: FeatureStore, arms: Sequence[HeadArm]
) -> HeadSamples:
    """Joins the log with hidden states. Raises ConfigError where there is nothing to learn from."""
    places = {place.number: place for place in store.texts}
    parts: list[HeadSamples] = []
    for number, turn in turns:
        place = places.get(number)
        if place is None:
            continue
        # Texts are cut where features are made.
        roots = [r for r in _visited(turn, number, arms) if r.context_tokens <= place.num_tokens]
        if not roots:
            continue
        # The signals at a root come from the row that the root was taken from.
        rows = torch.tensor([row.context_tokens - 2 for row in roots])
        hidden = store.hidden(place)[rows].float()
        parts.append(_of_text(turn, roots, hidden, arms, place))
    if not parts:
        raise ConfigError(
            "no logged text has hidden states at its roots; give more texts (--texts)"
        )
    return HeadSamples(
        *(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(HeadSamples))
    )


def _visited(turn: Turn, number: int, arms: Sequence[HeadArm]) -> list[RouteRow]:
    """Rows at roots that random walks come to, in order, each root once."""
    found: dict[int, RouteRow] = {}
    for walk in range(NUM_WALKS):
        for row in _walk(turn, random.Random(f"{number} {walk}"), arms):
            found.setdefault(row.context_tokens, row)
    return [found[key] for key in sorted(found)]


def _walk(turn: Turn, draw: random.Random, arms: Sequence[HeadArm]) -> Iterator[RouteRow]:
    names = [NONE, *(arm.arm for arm in arms)]
    taken, recent, position = draw.choice(names), RecentRates(), turn.first
    while position < turn.last:
        root = turn.roots.get(position)
        if root is None:
            position = turn.next_root(position)
            continue
        if root.max_nodes > 0 and math.isfinite(root.signals.entropy):
            yield RouteRow(turn.sequence, "", root.signals, tuple(names), {}, root.matched,
                           root.max_nodes, position + 1, recent_rates=recent.rates())  # fmt: skip
        if draw.random() < 1.0 / _STAY_ROUNDS:
            taken = draw.choice(names)
        proposal = root.known(taken)
        accepted = 0 if proposal is None else proposal.accepted(proposal.nodes)
        if proposal is not None:
            recent.note(taken, accepted, proposal.nodes)
        position += accepted + 1


def _of_text(
    turn: Turn,
    rows: Sequence[RouteRow],
    hidden: torch.Tensor,
    arms: Sequence[HeadArm],
    place: TextPlace,
) -> HeadSamples:
    shape = len(rows), len(arms), NUM_RANKS
    claims, hits, is_known = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
    for index, row in enumerate(rows):
        position = row.context_tokens - 1
        root = turn.roots[position]
        for number, arm in enumerate(arms):
            _label(root, arm, turn.last - position,
                   claims[index, number], hits[index, number], is_known[index, number])  # fmt: skip
    steps = np.stack([steps_of(claims[:, number]) for number in range(len(arms))], axis=1)
    return HeadSamples(
        hidden=hidden,
        signals=torch.from_numpy(signals_of(rows, [arm.arm for arm in arms])),
        steps=torch.from_numpy(steps).float(),
        claims=torch.from_numpy(claims).float(),
        hits=torch.from_numpy(hits).float(),
        is_known=torch.from_numpy(is_known),
        is_held_out=torch.full((len(rows),), place.split == HELD_OUT),
        is_tuning=torch.full((len(rows),), is_tuning(place.number, place.split)),
    )


def _label(
    root: Root,
    arm: HeadArm,
    left: int,
    claims: npt.NDArray[np.float64],
    hits: npt.NDArray[np.float64],
    is_known: npt.NDArray[np.bool_],
) -> None:
    """Fills the rows of one arm at one root; `left`: tokens of the text behind the root."""
    proposal: Proposal | None = root.known(arm.arm)
    if proposal is None or (arm.has_claims and proposal.nodes == 0):
        return
    odds = np.array([*proposal.survival, *[0.0] * NUM_RANKS])[:NUM_RANKS]
    claims[:] = odds
    true = [rank for rank in proposal.ranks or () if rank < NUM_RANKS]
    hits[true] = 1.0
    # A draft that came true to the end of the text is censored there.
    if len(proposal.ranks or ()) < left:
        # What is not drafted is not accepted; a draft at hand says itself how long it is.
        is_known[: proposal.nodes if arm.has_claims else NUM_RANKS] = True
    is_known[true] = True
