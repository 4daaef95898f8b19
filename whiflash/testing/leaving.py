"""Callers who leave while their rows draft."""

from __future__ import annotations

import random
from collections.abc import Sequence

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter
from whiflash.core.rows import DraftRow
from whiflash.testing.requests import Planned

LEAVING_SHARE = 0.3


def let_leave(drafter: Drafter, planned: Sequence[Planned], rng: random.Random) -> None:
    """From now on, whenever `drafter` drafts for callers of `planned` who may leave in the middle
    of a draft, some do."""
    propose = drafter.propose

    def proposed(rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = propose(rows)
        for plan in planned:
            is_here = plan.cancels_mid_draft and any(_is_of(row, plan) for row in rows)
            if is_here and plan.ticket is not None and rng.random() < LEAVING_SHARE:
                plan.ticket.cancel()
        return trees

    drafter.propose = proposed  # type: ignore[method-assign]


def _is_of(row: DraftRow, plan: Planned) -> bool:
    prompt = plan.request.prompt_ids
    return bool(row.context[: len(prompt)].tolist() == list(prompt))
