"""A target that writes one text by itself: markers come where a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whiflash.core.protocols import ForwardOutput, ForwardSegment, Target, Tokenizer

BONUS = 1000.0


class MarkerTarget:
    """`inner`, which says `text` from token number `start` of a sequence on, the prompt counted,
    and goes on as it likes. What a row says depends on its position alone, so drafted or not
    makes no difference."""

    def __init__(self, inner: Target, tokenizer: Tokenizer, text: str, start: int) -> None:
        self._inner = inner
        self._ids = tokenizer.encode(text)
        self._start = start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def forward(self, segments: Sequence[ForwardSegment]) -> ForwardOutput:
        positions = [place for segment in segments for place in _asked_positions(segment)]
        output = self._inner.forward(segments)
        logits = output.logits.clone()
        for row, position in enumerate(positions):
            number = position + 1 - self._start
            if 0 <= number < len(self._ids):
                logits[row, self._ids[number]] += BONUS
        return ForwardOutput(logits, output.hidden)


def _asked_positions(segment: ForwardSegment) -> list[int]:
    count = len(segment.token_ids)
    parents = range(-1, count - 1) if segment.parents is None else segment.parents.tolist()
    places: list[int] = []
    for parent in parents:
        places.append(segment.cache.length if parent < 0 else places[parent] + 1)
    return places[count - segment.num_logits :]
