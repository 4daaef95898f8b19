"""Cuts what looks like a secret out of a record's tokens."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from whiflash.core.protocols import Tokenizer
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redaction.patterns import secret_spans

SpanFinder = Callable[[str], Iterable[tuple[int, int]]]
"""Character ranges [start, end) of a text that must not be stored."""

MIN_STRETCH_TOKENS = 2  # one token alone teaches nothing
MAX_PIECES = 2**18
_ANCHOR = "a"


class Redactor:
    """Splits records into the stretches between their secrets. The tokens of a secret are never
    written, those that only touch it neither; nothing is put in their place, and no draft goes
    across the cut. One thread uses it.

    It looks for common secret shapes, and for whatever the finders in `also` name.
    """

    def __init__(self, tokenizer: Tokenizer, *also: SpanFinder) -> None:
        self._tokenizer = tokenizer
        self._finders = (secret_spans, *also)
        self._pieces: dict[int, str] = {}
        # Tokenizers strip the space in front of the first token, so no token is decoded alone.
        self._anchor = tokenizer.encode(_ANCHOR)[-1]
        self._anchor_text = tokenizer.decode([self._anchor])
        self.num_masked = 0  # tokens left out so far

    def split(self, record: TrajectoryRecord) -> list[TrajectoryRecord]:
        """The record itself where nothing is to be hidden, else its stretches in order."""
        pieces = [self._piece(token) for token in record.tokens.tolist()]
        text = "".join(pieces)
        spans = [span for find in self._finders for span in find(text) if span[0] < span[1]]
        if not spans:
            return [record]
        is_masked = _touched_tokens(pieces, spans)
        self.num_masked += sum(is_masked)
        return [
            _stretch(record, start, end)
            for start, end in _runs(is_masked)
            if end - start >= MIN_STRETCH_TOKENS
        ]

    def _piece(self, token: int) -> str:
        """What the token adds to a text. Half a character shows as U+FFFD, one per token."""
        known = self._pieces.get(token)
        if known is None:
            text = self._tokenizer.decode([self._anchor, token])
            known = text.removeprefix(self._anchor_text)
            if len(self._pieces) < MAX_PIECES:
                self._pieces[token] = known
        return known


def _touched_tokens(pieces: Sequence[str], spans: Iterable[tuple[int, int]]) -> list[bool]:
    """Which tokens share a character with a span. Empty tokens inside one are taken too."""
    ends = list(accumulate(map(len, pieces)))
    is_masked = [False] * len(pieces)
    for start, end in spans:
        first = bisect.bisect_right(ends, start)
        last = bisect.bisect_left(ends, end)
        for place in range(first, min(last + 1, len(pieces))):
            is_masked[place] = True
    return is_masked


def _runs(is_masked: Sequence[bool]) -> list[tuple[int, int]]:
    """Ranges of tokens that are not masked."""
    edges = np.flatnonzero(np.diff(np.array([True, *is_masked, True], np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _stretch(record: TrajectoryRecord, start: int, end: int) -> TrajectoryRecord:
    """Its id follows from the record's, so that a copy is still known as one."""
    seed = f"{record.record_id}:{start}:{end}".encode()
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little")
    return replace(record, tokens=record.tokens[start:end], part=start, record_id=number | 1)
