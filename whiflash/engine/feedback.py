"""Scores proposals against the text that came after their roots, whether verified or not.

The text does not depend on the arm, so a proposal that was never verified can be scored as soon
as enough text stands behind its root (design.md 7)."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback
from whiflash.engine.drafting import RowDraft
from whiflash.engine.sequence import Sequence


def matched_path(tree: DraftTree, followed: tuple[int, ...]) -> tuple[int, bool]:
    """(nodes matched along `followed`, whether more text could still change the score)."""
    children = tree.children()
    row = 0
    for depth, token in enumerate(followed):
        child = children[row].get(token)
        if child is None:
            return depth, False
        row = child
    return len(followed), bool(children[row])


@dataclass(frozen=True, slots=True)
class _Pending:
    arm: str
    row: DraftRow
    tree: DraftTree
    root_index: int  # index of the root in the sequence's ids
    verified: bool


class FeedbackBook:
    """Proposals whose outcome is not known yet, by sequence."""

    def __init__(self) -> None:
        self._pending: dict[int, list[_Pending]] = {}

    def note(self, draft: RowDraft) -> None:
        """Before the round's tokens are appended: every proposal made at this root."""
        if draft.draft_row is None:
            return
        entries = self._pending.setdefault(draft.sequence.id, [])
        for arm, tree in draft.proposals.items():
            if len(tree):
                was_verified = arm == draft.choice.arm and len(draft.tree) == len(tree)
                entries.append(
                    _Pending(arm, draft.draft_row, tree, draft.sequence.num_ids - 1, was_verified)
                )

    def settle(self, sequence: Sequence) -> dict[str, list[Feedback]]:
        """After a round: the proposals whose outcome is known now, by arm. A finished sequence
        settles all; what its text does not reach stays unscored (censored)."""
        waiting: list[_Pending] = []
        settled: dict[str, list[Feedback]] = {}
        for entry in self._pending.pop(sequence.id, []):
            end = entry.root_index + 1 + entry.tree.max_depth
            followed = tuple(sequence.ids[entry.root_index + 1 : end].tolist())
            if matched_path(entry.tree, followed)[1] and not sequence.is_finished:
                waiting.append(entry)
            elif followed:
                settled.setdefault(entry.arm, []).append(
                    Feedback(entry.row, entry.tree, followed, entry.verified)
                )
        if waiting:
            self._pending[sequence.id] = waiting
        return settled

    def forget(self, sequence_id: int) -> None:
        self._pending.pop(sequence_id, None)

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._pending.values())
