"""Signals at new roots, from the logits that the roots were taken from; only what is asked for."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch

from whiflash.core.draft import DraftTree
from whiflash.core.signals import SignalNeeds, Signals
from whiflash.sampling.entropy import entropy_and_margin


@dataclass(frozen=True, slots=True)
class Visit:
    """What one sequence went through in a forward.

    first_row: where its rows begin in the logits; path: rows of the accepted path within them, the
    root's first; recent: `Signals.recent` at the root before.
    """

    first_row: int
    path: tuple[int, ...]
    tree: DraftTree
    recent: tuple[float, ...] = ()

    @property
    def last_row(self) -> int:
        """Row of the logits that the new root was taken from."""
        return self.first_row + self.path[-1]


def root_signals(
    logits: torch.Tensor, hidden: torch.Tensor, visits: Rows[Visit], needs: SignalNeeds
) -> list[Signals]:
    """Per visit. logits: [R, V], hidden: [R, h] of the same rows."""
    if not visits:
        return []
    rows = [visit.last_row for visit in visits]
    measured = entropy_and_margin(logits, rows)
    recents = _recents(logits, visits, [entropy for entropy, _ in measured], needs.lookback)
    states = hidden[rows].float().cpu().numpy() if needs.hidden else None
    return [
        Signals(
            *measured[place],
            hidden=None if states is None else states[place],
            recent=recents[place],
            agreement=_agreement(logits, visit) if needs.agreement else None,
        )
        for place, visit in enumerate(visits)
    ]


def _recents(
    logits: torch.Tensor, visits: Rows[Visit], latest: Rows[float], lookback: int
) -> list[tuple[float, ...]]:
    """The latest first: this forward's emitted tokens, then what was known before."""
    if lookback == 0:
        return [()] * len(visits)
    earlier = [[v.first_row + row for row in v.path[-lookback:-1]] for v in visits]
    rows = [row for part in earlier for row in part]
    found = entropy_and_margin(logits, rows)
    known = {row: entropy for row, (entropy, _) in zip(rows, found, strict=True)}
    return [
        (last, *(known[row] for row in reversed(part)), *visit.recent)[:lookback]
        for visit, part, last in zip(visits, earlier, latest, strict=True)
    ]


def _agreement(logits: torch.Tensor, visit: Visit) -> tuple[float, ...]:
    """By depth, the target's probability of the drafted ids, along the accepted path and on from
    its end along first children."""
    children = visit.tree.children()
    path = list(visit.path)
    while children[path[-1]]:
        path.append(next(iter(children[path[-1]].values())))
    steps = [(visit.first_row + row, list(children[row])) for row in path if children[row]]
    if not steps:
        return ()
    scores = logits[[row for row, _ in steps]].float()
    log_z = torch.logsumexp(scores, -1)
    return tuple(
        float((scores[place, ids] - log_z[place]).exp().sum())
        for place, (_, ids) in enumerate(steps)
    )
