"""A grammar ready for one vocabulary, and how far one sequence has come in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from whiflash.chat.constraints.library import grammar_library
from whiflash.core.draft import DraftTree
from whiflash.core.masks import TokenMasks, num_words

if TYPE_CHECKING:
    import xgrammar

_NO_ROW = -1

MAX_MASK_SECONDS = 1.0
"""Of one tree: a grammar that costs more holds up everybody in the batch."""


class CompiledGrammar:
    """`core.protocols.CompiledConstraint`. num_bytes: memory held, about."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, vocab_size: int) -> None:
        self._compiled = compiled
        self._vocab_size = vocab_size
        self._silent_ids = frozenset(compiled.tokenizer_info.special_token_ids)

    @property
    def num_bytes(self) -> int:
        return int(self._compiled.memory_size_bytes)

    def start(self) -> GrammarState:
        matcher = grammar_library().GrammarMatcher(self._compiled)
        return GrammarState(matcher, self._vocab_size, self._silent_ids)


class GrammarState:
    """`core.protocols.TokenConstraint` over one matcher. silent_ids spell nothing."""

    def __init__(
        self, matcher: xgrammar.GrammarMatcher, vocab_size: int, silent_ids: frozenset[int]
    ) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._silent_ids = silent_ids

    @property
    def is_ended(self) -> bool:
        return bool(self._matcher.is_terminated())

    def advance(self, token_id: int) -> bool:
        # The library would refuse these too, with a line on stderr each.
        if not 0 <= token_id < self._vocab_size or token_id in self._silent_ids:
            return False
        return bool(self._matcher.accept_token(token_id))

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)

    def masks(self, tree: DraftTree) -> TokenMasks:
        # Rows that the traversal does not reach keep what is here: nothing is allowed.
        words = np.zeros((len(tree) + 1, num_words(self._vocab_size)), np.int32)
        if not len(tree):
            self._matcher.fill_next_token_bitmask(words, 0)
            return TokenMasks(words, self._vocab_size)
        first_child, next_sibling = _links(tree)
        tokens = np.concatenate([np.zeros(1, np.int64), tree.tokens])
        is_whole = self._matcher.traverse_draft_tree(
            torch.from_numpy(first_child),
            torch.from_numpy(next_sibling),
            torch.from_numpy(tokens),
            torch.from_numpy(words),
            MAX_MASK_SECONDS,
        )
        if not is_whole:
            raise RuntimeError(f"masks took more than {MAX_MASK_SECONDS:g} s; simplify the schema")
        return TokenMasks(words, self._vocab_size)


def _links(tree: DraftTree) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Per row, its first child and its next sibling; -1 for none."""
    first_child = np.full(len(tree) + 1, _NO_ROW, np.int64)
    next_sibling = np.full(len(tree) + 1, _NO_ROW, np.int64)
    for row in range(len(tree), 0, -1):
        parent = tree.parents[row - 1]
        next_sibling[row] = first_child[parent]
        first_child[parent] = row
    return first_child, next_sibling
