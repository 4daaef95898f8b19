"""The second half of a round: one ragged forward, then acceptance row by row."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError, NumericsError, WhiFlashError
from whiflash.core.masks import TokenMasks
from whiflash.core.protocols import ForwardSegment, Target
from whiflash.core.results import TokenLogprob
from whiflash.core.signals import SignalNeeds, Signals
from whiflash.engine.drafting import RowDraft
from whiflash.engine.grammar import GrammarError
from whiflash.engine.prefill import PrefillChunk
from whiflash.engine.root_signals import Visit, root_signals
from whiflash.engine.sequence import Sequence
from whiflash.sampling.acceptance import Acceptance, walk
from whiflash.sampling.sampler import greedy_tokens, token_logprob

_EMPTY = DraftTree.empty()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the target says of one row: accepted path and emitted tokens, or an error.

    last_row: row of the forward's logits that the last token was taken from.
    """

    sequence: Sequence
    acceptance: Acceptance | None
    logprobs: tuple[TokenLogprob, ...] = ()
    last_row: int = 0
    error: WhiFlashError | None = None


class VerifyForward:
    """One forward of all rows. Logits live only as long as this object.

    Masks are made between the forward's launch and the first look at its logits: on a device that
    computes by itself they cost no time. mask_ms: what they took.
    """

    def __init__(self, target: Target, rows: Rows[RowDraft], chunks: Rows[PrefillChunk]) -> None:
        segments = [_segment(row) for row in rows] + [chunk.segment() for chunk in chunks]
        started = time.perf_counter()
        output = target.forward(segments)
        self._logits, self._hidden = output.logits, output.hidden
        launched = time.perf_counter()
        self._masks = _all_masks(rows, chunks)
        self.mask_ms = 1e3 * (time.perf_counter() - launched)
        self.num_rows = sum(len(segment.token_ids) for segment in segments)
        has_greedy = any(s.sampler.is_plain_greedy for s in _asked(rows, chunks))
        self._greedy_ids = _greedy_or_none(self._logits) if has_greedy else None
        self.verify_ms = 1e3 * (time.perf_counter() - started) - self.mask_ms

    def judge_all(self, rows: Rows[RowDraft], chunks: Rows[PrefillChunk]) -> list[Verdict]:
        """Verdicts of all decoding rows, then of the chunks that end a prompt, in order."""
        verdicts: list[Verdict] = []
        first_row = 0
        for row in rows:
            verdicts.append(self.judge(row, first_row))
            first_row += 1 + len(row.tree)
        for chunk in chunks:
            if chunk.is_last:
                verdicts.append(self.judge_prefill(chunk.sequence, first_row))
                first_row += 1
        return verdicts

    def judge(self, row: RowDraft, first_row: int) -> Verdict:
        """`first_row`: where this sequence's rows begin in the logits."""
        return self._judge(row.sequence, row.tree, first_row)

    def judge_prefill(self, sequence: Sequence, first_row: int) -> Verdict:
        """The first token of an answer, from the last prompt row."""
        return self._judge(sequence, _EMPTY, first_row)

    def _judge(self, sequence: Sequence, tree: DraftTree, first_row: int) -> Verdict:
        generated = sequence.generated.tolist()
        masks = self._masks.get(sequence.id)
        if isinstance(masks, GrammarError):
            return Verdict(sequence, None, error=masks)

        def choose(row: int, path_tokens: Rows[int]) -> int:
            allowed = None if masks is None else _RowMask(masks, row)
            return self._sample(sequence, first_row + row, [*generated, *path_tokens], allowed)

        try:
            acceptance = walk(tree, choose)
        except (NumericsError, InvalidRequestError) as error:
            return Verdict(sequence, None, error=error)
        return Verdict(
            sequence,
            acceptance,
            self._logprobs(sequence, acceptance, first_row),
            first_row + acceptance.rows[-1],
        )

    def _sample(
        self, sequence: Sequence, row: int, generated: list[int], allowed: _RowMask | None
    ) -> int:
        sampler = sequence.sampler
        if self._greedy_ids is not None and sampler.is_plain_greedy:
            best = self._greedy_ids[row]
            if allowed is None or allowed.masks.allows(allowed.row, best):
                return best  # the best of all is the best of those allowed
        unpacked = None if allowed is None else allowed.masks.row(allowed.row)
        return sampler.sample(self._logits[row], generated, unpacked)

    def _logprobs(
        self, sequence: Sequence, acceptance: Acceptance, first_row: int
    ) -> tuple[TokenLogprob, ...]:
        count = sequence.request.params.logprobs
        if count is None:
            return ()
        return tuple(
            token_logprob(self._logits[first_row + row], token, count)
            for row, token in zip(acceptance.rows, acceptance.tokens, strict=True)
        )

    def signals(
        self, verdicts: Rows[Verdict], trees: Mapping[int, DraftTree], needs: SignalNeeds
    ) -> list[Signals]:
        """At the new root of each sound verdict; `trees` are the verified drafts by sequence."""
        visits = [_visit(v, trees.get(v.sequence.id, _EMPTY)) for v in verdicts]
        return root_signals(self._logits, self._hidden, visits, needs)


def _visit(verdict: Verdict, tree: DraftTree) -> Visit:
    assert verdict.acceptance is not None
    path, before = verdict.acceptance.rows, verdict.sequence.signals
    recent = before.recent if before is not None else ()
    return Visit(verdict.last_row - path[-1], tuple(path), tree, recent)


def _greedy_or_none(logits: torch.Tensor) -> list[int] | None:
    """Argmax of all rows at once. None where a row is unsound: rows are then judged one by one,
    so that only the request it belongs to fails."""
    try:
        return greedy_tokens(logits)
    except NumericsError:
        return None


@dataclass(frozen=True, slots=True)
class _RowMask:
    """One row of a tree's masks; unpacked only where it is needed."""

    masks: TokenMasks
    row: int


def _all_masks(
    rows: Rows[RowDraft], chunks: Rows[PrefillChunk]
) -> dict[int, TokenMasks | GrammarError]:
    """By sequence, for those with a grammar: a call per tree, the last prefill row being a root."""
    trees = [(row.sequence, row.tree) for row in rows]
    trees += [(chunk.sequence, _EMPTY) for chunk in chunks if chunk.is_last]
    masks: dict[int, TokenMasks | GrammarError] = {}
    for sequence, tree in trees:
        if sequence.grammar is not None:
            try:
                masks[sequence.id] = sequence.grammar.masks(tree)
            except GrammarError as error:
                masks[sequence.id] = error
    return masks


def _asked(rows: Rows[RowDraft], chunks: Rows[PrefillChunk]) -> list[Sequence]:
    return [row.sequence for row in rows] + [c.sequence for c in chunks if c.is_last]


def _segment(row: RowDraft) -> ForwardSegment:
    sequence, tree = row.sequence, row.tree
    assert sequence.cache is not None
    ids = np.empty(1 + len(tree), np.int64)
    ids[0] = sequence.ids[-1]
    ids[1:] = tree.tokens
    parents = None
    if len(tree) and not tree.is_chain:
        parents = np.concatenate([np.full(1, -1, np.int32), tree.parents])
    return ForwardSegment(sequence.cache, ids, parents, len(ids))
