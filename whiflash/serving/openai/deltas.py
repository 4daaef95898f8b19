"""What one choice of a chat says, as the deltas that OpenAI streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from whiflash.chat.events import EventKind, ParseEvent

Delta = dict[str, Any]
_TEXT_FIELDS = {EventKind.CONTENT: "content", EventKind.REASONING: "reasoning_content"}


@dataclass(slots=True)
class _Call:
    name: str
    pieces: list[str] = field(default_factory=list)


class ChoiceDeltas:
    """Turns parser events into deltas.

    holds_calls: a call is sent only once it is complete. What a client was sent cannot be taken
        back, and a call that no grammar forces may turn out not to be one: it is text then.
        Without it the arguments are sent as they are written.
    """

    def __init__(self, id_prefix: str, *, holds_calls: bool) -> None:
        self._id_prefix = id_prefix
        self._holds_calls = holds_calls
        self._call: _Call | None = None
        self._has_content = False
        self.num_calls = 0

    def of(self, events: Iterable[ParseEvent]) -> list[Delta]:
        """Deltas of events, neighbours of one kind joined."""
        joined: list[Delta] = []
        for event in events:
            for delta in self._of(event):
                if joined and _can_join(joined[-1], delta):
                    _join(joined[-1], delta)
                else:
                    joined.append(delta)
        return joined

    def _of(self, event: ParseEvent) -> Iterator[Delta]:
        match event.kind:
            case EventKind.CONTENT | EventKind.REASONING:
                self._has_content |= event.kind is EventKind.CONTENT
                yield {_TEXT_FIELDS[event.kind]: event.text}
            case EventKind.CALL_START:
                self._call = _Call(event.text)
                if not self._holds_calls:
                    yield self._start(event.text)
            case EventKind.ARGUMENTS:
                assert self._call is not None, "arguments follow the start of a call"
                self._call.pieces.append(event.text)
                if not self._holds_calls:
                    yield self._arguments(event.text)
            case EventKind.CALL_END:
                yield from self._end()
            case EventKind.CALL_BROKEN:
                yield from self._break(event.text)

    def _end(self) -> Iterator[Delta]:
        assert self._call is not None, "an end follows the start of a call"
        if self._holds_calls:
            yield self._start(self._call.name)
            yield self._arguments("".join(self._call.pieces))
        self._call = None

    def _break(self, text: str) -> Iterator[Delta]:
        self._call = None
        yield {"content": "\n" + text if self._has_content else text}
        self._has_content = True

    def _start(self, name: str) -> Delta:
        self.num_calls += 1
        number = self.num_calls - 1
        call = {
            "index": number,
            "id": f"{self._id_prefix}{number}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        return {"tool_calls": [call]}

    def _arguments(self, piece: str) -> Delta:
        return {"tool_calls": [{"index": self.num_calls - 1, "function": {"arguments": piece}}]}


class Message:
    """Deltas joined: the message of an answer that is not streamed."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: Delta) -> None:
        """The next delta."""
        for name in _TEXT_FIELDS.values():
            if name in delta:
                self._texts[name] = self._texts.get(name, "") + delta[name]
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                self._calls.append({**call, "function": {**call["function"]}})
                del self._calls[-1]["index"]
            else:
                function = self._calls[call["index"]]["function"]
                function["arguments"] += call["function"]["arguments"]

    def to_openai(self) -> dict[str, Any]:
        """The message for a client."""
        content = self._texts.get("content") or (None if self._calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if reasoning := self._texts.get("reasoning_content"):
            message["reasoning_content"] = reasoning
        if self._calls:
            message["tool_calls"] = self._calls
        return message


def _can_join(before: Delta, delta: Delta) -> bool:
    if before.keys() != delta.keys():
        return False
    return "tool_calls" not in delta or not any(
        "id" in each["tool_calls"][0] for each in (before, delta)
    )


def _join(before: Delta, delta: Delta) -> None:
    if "tool_calls" in delta:
        pieces = delta["tool_calls"][0]["function"]["arguments"]
        before["tool_calls"][0]["function"]["arguments"] += pieces
        return
    for name, text in delta.items():
        before[name] += text
