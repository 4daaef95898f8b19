"""Incremental parser of the `hermes` format: JSON calls between `<tool_call>` markers, with the
`<think>` reasoning of Qwen3 where the model has it.

The result does not depend on how the text was cut into pieces: a round of speculation delivers
several tokens at once, and a token may hold half a marker or a marker and what follows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, auto

from whiflash.chat.builder import MessageBuilder
from whiflash.chat.call_block import CallBlock
from whiflash.chat.events import ParseEvent
from whiflash.chat.json_scan import JsonScanError
from whiflash.chat.markers import find_first, held_length
from whiflash.chat.messages import ParsedMessage, ToolCall
from whiflash.core.results import FinishReason

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_CALL_MARKERS = (CALL_OPEN, CALL_CLOSE)


class _Mode(Enum):
    START = auto()  # a <think> may come
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()  # inside the JSON object
    AFTER_CALL = auto()  # behind the object, before the closing marker
    BROKEN = auto()  # looking for the end of a block that cannot be read


class HermesParser:
    """One parser for one generated text, without its stop token.

    has_calls:     False reads call markers as plain content.
    has_reasoning: the text may open with `<think>`.
    in_reasoning:  the prompt has already opened it.
    """

    def __init__(
        self, *, has_calls: bool = True, has_reasoning: bool = False, in_reasoning: bool = False
    ) -> None:
        self._call_open = (CALL_OPEN,) if has_calls else ()
        self._opened_by_prompt = in_reasoning
        self._mode = _Mode.START if has_reasoning else _Mode.CONTENT
        self._text: list[str] = []
        self._pending = ""
        self._builder = MessageBuilder()
        self._block = CallBlock()
        self._block_text: list[str] = []
        self._fault = ""
        self._may_close_late = False
        self._is_partial = False
        self._is_finished = False
        if in_reasoning:
            self._enter_reasoning()

    def feed(self, text: str) -> list[ParseEvent]:
        """The next piece of the text; returns what has become certain."""
        if self._is_finished:
            raise RuntimeError("feed() after finish()")
        self._text.append(text)
        self._pending += text
        self._run()
        return self._builder.take_events()

    def finish(self, reason: FinishReason) -> list[ParseEvent]:
        """The text has ended for `reason`; returns what was held back."""
        if self._is_finished:
            raise RuntimeError("finish() twice")
        self._is_finished = True
        self._end(reason)
        return self._builder.take_events()

    def message(self) -> ParsedMessage:
        """All of it. Only after `finish`."""
        if not self._is_finished:
            raise RuntimeError("message() before finish()")
        built, text = self._builder, "".join(self._text)
        written = write(built.content, tuple(built.calls))
        if built.reasoning is not None:
            opening = "" if self._opened_by_prompt else f"{THINK_OPEN}\n"
            written = f"{opening}{built.reasoning}\n{THINK_CLOSE}\n\n{written}"
        return ParsedMessage(
            text=text,
            content=built.content,
            reasoning=built.reasoning,
            calls=tuple(built.calls),
            broken=tuple(built.broken),
            is_partial=self._is_partial,
            is_regular=written == text,
        )

    def _run(self) -> None:
        steps: dict[_Mode, Callable[[], bool]] = {
            _Mode.START: self._step_start,
            _Mode.REASONING: self._step_reasoning,
            _Mode.CONTENT: self._step_content,
            _Mode.CALL: self._step_call,
            _Mode.AFTER_CALL: self._step_after_call,
            _Mode.BROKEN: self._step_broken,
        }
        while self._pending and steps[self._mode]():
            pass

    # A step works on the pending text and says whether another one may follow.

    def _step_start(self) -> bool:
        start = self._pending.lstrip()
        if start.startswith(THINK_OPEN):
            self._pending = start[len(THINK_OPEN) :]
            self._enter_reasoning()
            return True
        if THINK_OPEN.startswith(start):
            return False
        self._mode = _Mode.CONTENT
        return True

    def _step_reasoning(self) -> bool:
        marker = self._release((THINK_CLOSE, *self._call_open))
        if marker is None:
            return False
        self._builder.end_reasoning()
        self._mode = _Mode.CONTENT
        if marker == CALL_OPEN:
            self._may_close_late = True
            self._enter_call()
        return True

    def _step_content(self) -> bool:
        late = (THINK_CLOSE,) if self._may_close_late else ()
        marker = self._release((*self._call_open, *late))
        if marker is None:
            return False
        if marker == CALL_OPEN:
            self._enter_call()
        else:
            self._may_close_late = False
        return True

    def _step_call(self) -> bool:
        for number, char in enumerate(self._pending):
            try:
                self._block.feed(char)
            except JsonScanError as error:
                self._take(number)
                self._builder.add_call(self._block)
                self._break(str(error))
                return True
            if self._block.is_done:
                self._take(number + 1)
                self._builder.add_call(self._block)
                self._mode = _Mode.AFTER_CALL
                return True
        self._take(len(self._pending))
        self._builder.add_call(self._block)
        return False

    def _step_after_call(self) -> bool:
        rest = self._pending.lstrip()
        if any(len(rest) < len(mark) and mark.startswith(rest) for mark in _CALL_MARKERS):
            return False
        self._take(len(self._pending) - len(rest))
        if rest.startswith(_CALL_MARKERS):
            self._pending = rest.removeprefix(CALL_CLOSE)
            self._end_call()
        else:
            self._break(f"{rest[0]!r} behind the JSON object of the call")
        return True

    def _step_broken(self) -> bool:
        found = find_first(self._pending, _CALL_MARKERS)
        if found is None:
            self._take(len(self._pending) - held_length(self._pending, _CALL_MARKERS))
            return False
        at, marker = found
        self._take(at + (len(marker) if marker == CALL_CLOSE else 0))
        self._end_broken()
        return True

    def _end(self, reason: FinishReason) -> None:
        if self._mode in (_Mode.START, _Mode.CONTENT):
            self._builder.add(self._pending, is_reasoning=False)
        elif self._mode is _Mode.REASONING:
            self._builder.add(self._pending, is_reasoning=True)
            self._is_partial = True
        elif self._mode is _Mode.AFTER_CALL:
            self._end_call()
        elif self._mode is _Mode.CALL and reason is not FinishReason.STOP:
            self._is_partial = True
        else:
            self._take(len(self._pending))
            self._fault = self._fault or "the text ends inside the call"
            self._end_broken()

    def _release(self, markers: tuple[str, ...]) -> str | None:
        """Reports pending prose up to the first marker and drops that; without one, up to what
        may yet become one. Returns the marker."""
        found = find_first(self._pending, markers)
        is_reasoning = self._mode is _Mode.REASONING
        if found is None:
            end = len(self._pending) - held_length(self._pending, markers)
            prose, self._pending = self._pending[:end], self._pending[end:]
            self._builder.add(prose, is_reasoning=is_reasoning)
            return None
        at, marker = found
        self._builder.add(self._pending[:at].rstrip("\n"), is_reasoning=is_reasoning)
        self._pending = self._pending[at + len(marker) :]
        return marker

    def _take(self, count: int) -> None:
        self._block_text.append(self._pending[:count])
        self._pending = self._pending[count:]

    def _enter_reasoning(self) -> None:
        self._mode = _Mode.REASONING
        self._builder.open_reasoning()

    def _enter_call(self) -> None:
        self._mode = _Mode.CALL
        self._block, self._block_text, self._fault = CallBlock(), [CALL_OPEN], ""

    def _end_call(self) -> None:
        self._builder.end_call(self._block)
        self._mode = _Mode.CONTENT

    def _break(self, fault: str) -> None:
        self._fault, self._mode = fault, _Mode.BROKEN

    def _end_broken(self) -> None:
        self._builder.break_call("".join(self._block_text), self._fault)
        self._mode = _Mode.CONTENT


def write(content: str, calls: tuple[ToolCall, ...]) -> str:
    """The text of an assistant turn as the format has it: content, then a block per call."""
    blocks = [
        f'{CALL_OPEN}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, '
        f'"arguments": {call.arguments}}}\n{CALL_CLOSE}'
        for call in calls
    ]
    return "\n".join([content, *blocks] if content else blocks)
