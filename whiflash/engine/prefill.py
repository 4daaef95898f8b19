"""Prompt tokens of a forward: a fixed share, smaller while rows decode beside them."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from whiflash.core.protocols import ForwardSegment
from whiflash.engine.sequence import Sequence, State

BUSY_SHARE = 0.25
"""Part of the prefill share that is left while other rows wait for their next token."""


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """`num_tokens` pending tokens of a sequence."""

    sequence: Sequence
    num_tokens: int

    @property
    def is_complete(self) -> bool:
        """Nothing is pending behind it."""
        return self.num_tokens == len(self.sequence.pending_prefill)

    @property
    def is_last(self) -> bool:
        """Its logits start the answer, which a chunk after a preemption never does."""
        return self.is_complete and not self.sequence.has_begun

    def segment(self) -> ForwardSegment:
        assert self.sequence.cache is not None
        ids = self.sequence.pending_prefill[: self.num_tokens].astype(np.int64)
        return ForwardSegment(self.sequence.cache, ids, None, int(self.is_last))


def plan_chunks(running: Rows[Sequence], share_tokens: int) -> list[PrefillChunk]:
    """Chunks for the next forward, oldest sequence first, within the share."""
    is_busy = any(s.state is State.DECODE for s in running)
    left = max(1, int(share_tokens * BUSY_SHARE)) if is_busy else share_tokens
    chunks: list[PrefillChunk] = []
    for sequence in running:
        if left == 0:
            break
        if sequence.state is State.PREFILL:
            take = min(left, len(sequence.pending_prefill))
            chunks.append(PrefillChunk(sequence, take))
            left -= take
    return chunks


def commit_chunks(chunks: Rows[PrefillChunk]) -> int:
    """After the forward; what is complete decodes from now on. Tokens committed."""
    for chunk in chunks:
        sequence, is_complete = chunk.sequence, chunk.is_complete
        assert sequence.cache is not None
        sequence.cache.commit(range(chunk.num_tokens))
        if is_complete:
            sequence.state = State.DECODE
    return sum(chunk.num_tokens for chunk in chunks)
