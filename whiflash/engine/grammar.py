"""The grammar of one choice: what may be drafted, what may be chosen, what has been said."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from typing import TypeVar

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError, WhiFlashError
from whiflash.core.masks import TokenMasks
from whiflash.core.protocols import CompiledConstraint

T = TypeVar("T")


class GrammarError(WhiFlashError):
    """A grammar failed while its answer was written; the request ends with reason `error`."""


class SequenceGrammar:
    """Follows the ids that were emitted; drafts never leave a trace.

    `forced_ids` were delivered before (resume). Raises InvalidRequestError where they break the
    grammar or end the answer.
    """

    def __init__(self, compiled: CompiledConstraint, forced_ids: Rows[int] = ()) -> None:
        self._compiled = compiled
        self._failure: GrammarError | None = None
        self._state = compiled.start()
        for number, token in enumerate(forced_ids):
            if not self._state.advance(token) or self._state.is_ended:
                raise InvalidRequestError(
                    f"forced_ids[{number}] is {token}, which the constraint does not let an "
                    "answer go on with; resume with the ids that were delivered",
                    "forced_ids",
                )

    def prune(self, tree: DraftTree) -> DraftTree:
        """Without the nodes that break the grammar. Nodes that end the text go too: the target
        emits that id from their parent's row, and nothing can follow them. Empty where the
        grammar failed, which `masks` reports."""
        is_kept = np.zeros(len(tree), bool)
        children = tree.children()

        def descend(row: int) -> None:
            for token, child in children[row].items():
                if self._state.advance(token):
                    if not self._state.is_ended:
                        is_kept[child - 1] = True
                        descend(child)
                    self._state.rollback(1)

        try:
            self._guarded(lambda: descend(0))
        except GrammarError:
            return DraftTree.empty()
        return tree.keep(is_kept)

    def masks(self, tree: DraftTree) -> TokenMasks:
        """What may be chosen at the root and at each node. Raises GrammarError."""
        return self._guarded(lambda: self._state.masks(tree))

    def advance(self, tokens: Rows[int]) -> None:
        """These ids were emitted. A failure is reported by the next `masks`."""
        try:
            is_legal = self._guarded(lambda: all(self._state.advance(token) for token in tokens))
        except GrammarError:
            return
        if not is_legal:
            self._failure = GrammarError("the grammar refused an id that it had allowed")

    def check_integrity(self, generated: Rows[int]) -> None:
        """Raises AssertionError unless the state is that of a fresh replay of `generated`."""
        fresh = self._compiled.start()
        for token in generated:
            assert fresh.advance(token), f"the answer breaks its grammar at id {token}"
        assert fresh.is_ended == self._state.is_ended, "the grammar ended too early or too late"
        if not fresh.is_ended:
            nothing = DraftTree.empty()
            ours, replayed = self._state.masks(nothing).words, fresh.masks(nothing).words
            assert np.array_equal(ours, replayed), "the grammar's state is not that of a replay"

    def _guarded(self, call: Callable[[], T]) -> T:
        """A grammar's library may fail; that must cost one request, not the engine. What it says
        after a failure is not to be trusted."""
        if self._failure is not None:
            raise self._failure
        try:
            return call()
        except Exception as error:
            self._failure = GrammarError(f"the answer's grammar failed: {error}")
            raise self._failure from error
