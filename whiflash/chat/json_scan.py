"""Incremental scanning of JSON text, one character at a time."""

from __future__ import annotations

import json
from enum import Enum, auto

MAX_DEPTH = 100
_SPACE = " \t\r\n"
_CLOSER = {"{": "}", "[": "]"}
_SCALAR_START = "-0123456789tfn"
_SCALAR_END = _SPACE + ",]}"


class JsonScanError(ValueError):
    """The text cannot become JSON, whatever follows."""


class Step(Enum):
    """What a character was to a value: a part of it, its last character, or behind it."""

    INSIDE = auto()
    LAST = auto()
    BEHIND = auto()


class ValueScanner:
    """Finds where one JSON value ends. Brackets, strings and escapes are followed; whether the
    text between them is JSON is for `json.loads` to say, once the value is whole."""

    def __init__(self) -> None:
        self._closers: list[str] = []
        self._in_string = False
        self._is_escaped = False
        self._in_scalar = False

    def feed(self, char: str) -> Step:
        """Takes the next character. Raises JsonScanError if no value can come of it."""
        if self._in_string:
            return self._feed_string(char)
        if self._in_scalar:
            return Step.BEHIND if char in _SCALAR_END else Step.INSIDE
        if char == '"':
            self._in_string = True
        elif char in _CLOSER:
            self._open(char)
        elif not self._closers:
            self._start_scalar(char)
        elif char == self._closers[-1]:
            self._closers.pop()
            return self._ended()
        elif char in "]}":
            raise JsonScanError(f"expected {self._closers[-1]!r}, got {char!r}")
        return Step.INSIDE

    def _feed_string(self, char: str) -> Step:
        if char < " ":
            raise JsonScanError(f"{char!r} inside a string")
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._in_string = False
            return self._ended()
        return Step.INSIDE

    def _open(self, char: str) -> None:
        if len(self._closers) == MAX_DEPTH:
            raise JsonScanError(f"more than {MAX_DEPTH} nested brackets")
        self._closers.append(_CLOSER[char])

    def _start_scalar(self, char: str) -> None:
        if char not in _SCALAR_START:
            raise JsonScanError(f"expected a value, got {char!r}")
        self._in_scalar = True

    def _ended(self) -> Step:
        return Step.INSIDE if self._closers else Step.LAST


class ObjectScanner:
    """Splits one JSON object into its members as it comes.

    `key` and `value()` are the member that is being read or was read last; the value grows by
    the character. `members` counts those that are complete.
    """

    def __init__(self) -> None:
        self.key = ""
        self.members = 0
        self.is_done = False
        self._expect = "{"
        self._scanner = ValueScanner()
        self._key_text = ""
        self._value: list[str] = []

    def value(self, start: int = 0) -> str:
        """The text of the value from its character `start` on."""
        return "".join(self._value[start:])

    def feed(self, char: str) -> None:
        """Takes the next character. Raises JsonScanError where no object can come of it."""
        if self._expect == "key text":
            self._feed_key(char)
        elif self._expect == "value text":
            self._feed_value(char)
        elif char not in _SPACE:
            self._feed_mark(char)

    def _feed_mark(self, char: str) -> None:
        expect = self._expect
        if expect == "value":
            self._start("value text")
            self._feed_value(char)
        elif char == '"' and expect in ("key", "key or }"):
            self._start("key text")
            self._feed_key(char)
        elif char == "}" and expect in (", or }", "key or }"):
            self.is_done = True
        elif char in expect.split(" or ") and char != "}":
            self._expect = {"{": "key or }", ":": "value", ",": "key"}[char]
        else:
            raise JsonScanError(f"expected {expect}, got {char!r}")

    def _start(self, expect: str) -> None:
        self._expect = expect
        self._scanner = ValueScanner()
        if expect == "key text":
            self._key_text = ""
        else:
            self._value = []

    def _feed_key(self, char: str) -> None:
        self._key_text += char
        if self._scanner.feed(char) is Step.LAST:
            self.key, self._value = read_string(self._key_text), []
            self._expect = ":"

    def _feed_value(self, char: str) -> None:
        step = self._scanner.feed(char)
        if step is not Step.BEHIND:
            self._value.append(char)
        if step is not Step.INSIDE:
            self.members += 1
            self._expect = ", or }"
        if step is Step.BEHIND:
            self.feed(char)


def read_string(text: str) -> str:
    """The string that the JSON text stands for. Raises JsonScanError if it is not a string."""
    try:
        value = json.loads(text)
        if not isinstance(value, str):
            raise JsonScanError(f"{text} is not a string")
        value.encode()
    except UnicodeEncodeError:
        raise JsonScanError(f"{text} holds half of a surrogate pair") from None
    except json.JSONDecodeError:
        raise JsonScanError(f"{text} is not JSON") from None
    return value
