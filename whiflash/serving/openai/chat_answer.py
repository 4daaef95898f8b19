"""A chat completion, streamed or whole, from the events of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whiflash.serving.openai.deltas import ChoiceDeltas, Delta, Message
from whiflash.serving.openai.head import Head
from whiflash.serving.openai.logprobs import chat_logprobs
from whiflash.serving.openai.token_texts import TokenTexts
from whiflash.serving.openai.totals import Totals, finish_reason
from whiflash.serving.stream import Ended, Piece, Queued, Started, StreamEvent

Chunk = dict[str, Any]


class ChatChunks:
    """Chunks of one answer: a role for each choice, its deltas, its finish reason.

    has_usage: `stream_options.include_usage`.
    """

    def __init__(
        self,
        head: Head,
        totals: Totals,
        texts: TokenTexts,
        *,
        num_choices: int,
        has_usage: bool,
        has_logprobs: bool,
        holds_calls: bool,
    ) -> None:
        self._head = head
        self._totals = totals
        self._texts = texts
        self._null_usage = {"usage": None} if has_usage else {}
        self._has_usage = has_usage
        self._has_logprobs = has_logprobs
        self._choices = [
            ChoiceDeltas(f"{head.call_prefix}{index}_", holds_calls=holds_calls)
            for index in range(num_choices)
        ]

    def of(self, event: StreamEvent) -> list[Chunk]:
        """The chunks of an event; none for one that tells a client nothing."""
        match event:
            case Queued():
                return []
            case Started():
                self._totals.start(event)
                return [
                    self._chunk(index, {"role": "assistant", "content": ""})
                    for index in range(len(self._choices))
                ]
            case Piece():
                return self._piece(event)
            case Ended():
                return self._end(event)

    def last(self) -> list[Chunk]:
        """What follows when all choices are done."""
        if not self._has_usage:
            return []
        usage = self._totals.usage()
        return [self._head.record([], usage=usage, whiflash=self._totals.extension())]

    def whole(self, chunks: Sequence[Chunk]) -> Chunk:
        """The answer in one piece, from all of its chunks."""
        messages = [Message() for _ in self._choices]
        tokens: list[list[dict[str, Any]]] = [[] for _ in self._choices]
        reasons: list[str | None] = [None for _ in self._choices]
        for chunk in chunks:
            for piece in chunk["choices"]:
                index = piece["index"]
                messages[index].add(piece["delta"])
                tokens[index].extend((piece["logprobs"] or {}).get("content", ()))
                reasons[index] = piece["finish_reason"] or reasons[index]
        choices = [
            {
                "index": index,
                "message": message.to_openai(),
                "logprobs": _all_logprobs(tokens[index]) if self._has_logprobs else None,
                "finish_reason": reasons[index],
            }
            for index, message in enumerate(messages)
        ]
        return self._head.record(
            choices, usage=self._totals.usage(), whiflash=self._totals.extension()
        )

    def _piece(self, piece: Piece) -> list[Chunk]:
        deltas: list[Delta] = self._choices[piece.index].of(piece.events)
        if not self._has_logprobs or not piece.logprobs:
            return [self._chunk(piece.index, delta) for delta in deltas]
        first, *rest = deltas or [{}]
        logprobs = chat_logprobs(piece.logprobs, self._texts)
        return [
            self._chunk(piece.index, first, logprobs=logprobs),
            *(self._chunk(piece.index, delta) for delta in rest),
        ]

    def _end(self, ended: Ended) -> list[Chunk]:
        choice = self._choices[ended.index]
        deltas = choice.of(ended.events)
        reason = finish_reason(ended, has_calls=choice.num_calls > 0)
        self._totals.end(ended)
        return [
            *(self._chunk(ended.index, delta) for delta in deltas),
            self._chunk(ended.index, {}, reason),
        ]

    def _chunk(
        self,
        index: int,
        delta: Delta,
        reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> Chunk:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._head.record([choice], **self._null_usage)


def _all_logprobs(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": content, "refusal": None}
