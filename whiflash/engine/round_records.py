"""What the round log holds: numbers of rounds and of settled proposals; never text or ids.

Four kinds of record (docs/policies.md): `run`, at the head of every file; `round`, a sequence's
round; `settled`, what the text that came says of one proposal, verified or not; `shadow`, what was
proposed at a round's root in spare time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter
from whiflash.core.rows import Feedback, StepCost
from whiflash.core.shape import shapes_of
from whiflash.engine.drafting import RowDraft
from whiflash.routing.survival import capped, likeliest_first, ranked

LOOKBACK = 3
"""Entropies of emitted tokens that a round holds: what ReSpec looks back."""
_MAX_RANKS = 64


def run_record(
    run: str, target: str, curve: CostCurve, drafters: Mapping[str, Drafter]
) -> dict[str, Any]:
    """run: a word that no other run has; target: fingerprint."""
    return {
        "kind": "run",
        "run": run,
        "target": target,
        "verify_ms": {str(count): round(ms, 4) for count, ms in curve.points},
        "free": {name: drafter.is_free for name, drafter in drafters.items()},
        "shapes": {name: asdict(shape) for name, shape in shapes_of(drafters).items()},
    }


def round_record(row: RowDraft, emitted: int, cost: StepCost, step: int, batch: int) -> Any:
    """position: index of the root in the sequence's ids. Times are the whole step's."""
    route = row.route
    signals = route.signals if route is not None else None
    return {
        "kind": "round",
        "step": step,
        "sequence": row.sequence.id,
        "position": row.sequence.num_ids - 1 - emitted,
        "arm": row.arm,
        "entropy": signals.entropy if signals else None,
        "margin": signals.margin if signals else None,
        "recent": [float(value) for value in signals.recent] if signals else [],
        "matched": route.matched if route else 0,
        "max_nodes": route.max_nodes if route else 0,
        "drafted": len(row.tree),
        **_proposed(row.proposals),
        "emitted": emitted,
        "ended": row.sequence.is_finished,
        "rows": cost.tokens,
        "batch": batch,
        "verify_ms": round(cost.verify_ms, 3),
        "draft_ms": {arm: round(ms, 4) for arm, ms in cost.draft_ms.items()},
        "catch_up": {
            arm: {"tokens": tokens, "ms": round(ms, 4)}
            for arm, (tokens, ms) in cost.catch_up.items()
        },
        "total_ms": round(cost.total_ms, 3),
    }


def shadow_record(
    sequence_id: int,
    position: int,
    propensity: float,
    drafted: Mapping[str, DraftTree],
    regret: float | None,
) -> dict[str, Any]:
    """propensity: probability with which any root is drawn. regret: of the round at the root, None
    where it is not known."""
    return {
        "kind": "shadow",
        "sequence": sequence_id,
        "position": position,
        "propensity": propensity,
        **_proposed(drafted),
        "regret": None if regret is None else round(regret, 4),
    }


def _proposed(trees: Mapping[str, DraftTree]) -> dict[str, Any]:
    """Sizes, and survival of what is not empty, by arm."""
    return {
        "proposed": {arm: len(tree) for arm, tree in trees.items()},
        "survival": {arm: _survival(tree) for arm, tree in trees.items() if len(tree)},
    }


def settled_record(sequence_id: int, arm: str, feedback: Feedback) -> dict[str, Any]:
    """ranks: by depth, how many nodes of the draft were likelier than the one that came true: a
    draft cut to n nodes would have had the accepted length of those ranks under n."""
    ranks = accepted_ranks(feedback.tree, feedback.followed)
    return {
        "kind": "settled",
        "sequence": sequence_id,
        "position": len(feedback.row.context) - 1,
        "arm": arm,
        "nodes": len(feedback.tree),
        "accepted": len(ranks),
        "ranks": {str(depth): rank for depth, rank in enumerate(ranks, 1)},
    }


def accepted_ranks(tree: DraftTree, followed: tuple[int, ...]) -> list[int]:
    """Ranks by likelihood of the nodes that came true, by depth."""
    children = tree.children()
    rank_of = likeliest_first(capped(tree)).argsort()
    row, ranks = 0, []
    for token in followed:
        child = children[row].get(token)
        if child is None:
            break
        row = child
        ranks.append(int(rank_of[row - 1]))
    return ranks


def _survival(tree: DraftTree) -> list[float]:
    """By rank, capped by the parent's."""
    return [round(float(odds), 4) for odds in ranked([tree])[0][:_MAX_RANKS]]
