"""A text completion, streamed or whole. Its choices are those of all prompts, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whiflash.core.protocols import Tokenizer
from whiflash.serving.openai.head import Head
from whiflash.serving.openai.logprobs import TextLogprobs, join_text_logprobs
from whiflash.serving.openai.token_texts import TokenTexts
from whiflash.serving.openai.totals import Totals, finish_reason
from whiflash.serving.stream import Ended, Piece, Queued, Started, StreamEvent

Chunk = dict[str, Any]


class TextChunks:
    """Chunks of an answer to `prompts` with `num_choices` each; `echoes` are put in front."""

    def __init__(
        self,
        head: Head,
        totals: Totals,
        tokenizer: Tokenizer,
        texts: TokenTexts,
        *,
        num_choices: int,
        echoes: Sequence[str],
        has_usage: bool,
        has_logprobs: bool,
    ) -> None:
        self._head = head
        self._totals = totals
        self._num_choices = num_choices
        self._echoes = echoes
        self._null_usage = {"usage": None} if has_usage else {}
        self._has_usage = has_usage
        self._logprobs = [
            TextLogprobs(tokenizer, texts) if has_logprobs else None
            for _ in range(num_choices * len(echoes))
        ]

    def of(self, prompt: int, event: StreamEvent) -> list[Chunk]:
        """The chunks of an event of one prompt's call."""
        first = prompt * self._num_choices
        match event:
            case Queued():
                return []
            case Started():
                self._totals.start(event)
                echo = self._echoes[prompt]
                choices = range(first, first + self._num_choices)
                return [self._chunk(index, echo) for index in choices if echo]
            case Piece():
                return self._piece(first + event.index, event)
            case Ended():
                reason = finish_reason(event, has_calls=False)
                self._totals.end(event)
                return [self._chunk(first + event.index, "", reason)]

    def last(self) -> list[Chunk]:
        """What follows when all choices are done."""
        if not self._has_usage:
            return []
        usage = self._totals.usage()
        return [self._head.record([], usage=usage, whiflash=self._totals.extension())]

    def whole(self, chunks: Sequence[Chunk]) -> Chunk:
        """The answer in one piece, from all of its chunks."""
        choices: list[dict[str, Any]] = [
            {"index": index, "text": "", "logprobs": None, "finish_reason": None}
            for index in range(len(self._logprobs))
        ]
        parts: list[list[dict[str, Any]]] = [[] for _ in choices]
        for chunk in chunks:
            for piece in chunk["choices"]:
                choice = choices[piece["index"]]
                choice["text"] += piece["text"]
                choice["finish_reason"] = piece["finish_reason"] or choice["finish_reason"]
                if piece["logprobs"] is not None:
                    parts[piece["index"]].append(piece["logprobs"])
        for choice, of_choice, logprobs in zip(choices, parts, self._logprobs, strict=True):
            choice["logprobs"] = join_text_logprobs(of_choice) if logprobs is not None else None
        return self._head.record(
            choices, usage=self._totals.usage(), whiflash=self._totals.extension()
        )

    def _piece(self, index: int, piece: Piece) -> list[Chunk]:
        logprobs = self._logprobs[index]
        told = logprobs.add(piece.logprobs) if logprobs is not None and piece.logprobs else None
        if not piece.text and told is None:
            return []
        return [self._chunk(index, piece.text, logprobs=told)]

    def _chunk(
        self,
        index: int,
        text: str,
        reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> Chunk:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._head.record([choice], **self._null_usage)
