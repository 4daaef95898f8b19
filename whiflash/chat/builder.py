"""Collects what a parser finds: as events while it runs, as one message at the end."""

from __future__ import annotations

from whiflash.chat.call_block import CallBlock
from whiflash.chat.events import EventKind, ParseEvent
from whiflash.chat.messages import BrokenCall, ToolCall


class MessageBuilder:
    """Keeps the rules of white space: newlines beside a tag belong to the tag, and content that
    goes on behind a call starts on a line of its own."""

    def __init__(self) -> None:
        self.content = ""
        self.reasoning: str | None = None
        self.calls: list[ToolCall] = []
        self.broken: list[BrokenCall] = []
        self._events: list[ParseEvent] = []
        self._is_behind_tag = False
        self._num_started = 0
        self._is_call_started = False

    def take_events(self) -> list[ParseEvent]:
        """Events since the last time."""
        events, self._events = self._events, []
        return events

    def open_reasoning(self) -> None:
        """What follows is reasoning, behind its opening tag."""
        self.reasoning = ""
        self._is_behind_tag = True

    def end_reasoning(self) -> None:
        """What follows stands behind the closing tag of the reasoning."""
        self._is_behind_tag = True

    def add(self, text: str, *, is_reasoning: bool) -> None:
        """Text that can no longer become a part of a marker."""
        text = self._behind_tag(text, is_reasoning)
        if not text:
            return
        if is_reasoning:
            self.reasoning = (self.reasoning or "") + text
            self._events.append(ParseEvent(EventKind.REASONING, text))
        else:
            self.content += text
            self._events.append(ParseEvent(EventKind.CONTENT, text))

    def add_call(self, block: CallBlock) -> None:
        """What is new in a call that is being read."""
        if not block.is_started:
            return
        if not self._is_call_started:
            self._is_call_started = True
            self._events.append(
                ParseEvent(EventKind.CALL_START, block.name or "", self._num_started)
            )
            self._num_started += 1
        if piece := block.take_arguments():
            self._events.append(ParseEvent(EventKind.ARGUMENTS, piece, self._num_started - 1))

    def end_call(self, block: CallBlock) -> None:
        """The call is complete and behind its closing marker."""
        self.calls.append(block.call())
        self._events.append(ParseEvent(EventKind.CALL_END, "", self._num_started - 1))
        self._close_block()

    def break_call(self, text: str, reason: str) -> None:
        """The block `text` cannot be read; what was reported of it is void."""
        self.broken.append(BrokenCall(text, reason))
        number = self._num_started - 1 if self._is_call_started else None
        self._events.append(ParseEvent(EventKind.CALL_BROKEN, text, number))
        self._close_block()

    def _close_block(self) -> None:
        self._is_call_started = False
        self._is_behind_tag = True

    def _behind_tag(self, text: str, is_reasoning: bool) -> str:
        if not self._is_behind_tag:
            return text
        has_block = bool(self.calls or self.broken)
        text = text.lstrip() if has_block else text.lstrip("\n")
        if text:
            self._is_behind_tag = False
            if has_block and self.content and not is_reasoning:
                return "\n" + text
        return text
