"""Stop strings in a stream of text: cut at the first one, withhold what may become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class _Needle:
    """Knuth-Morris-Pratt automaton: one step per character, whatever the strings are."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0  # length of the longest prefix of `text` that the stream ends with
        self._fallback = [0] * (len(text) + 1)  # by matched length: the next shorter candidate
        for length in range(1, len(text)):
            self._fallback[length + 1] = self._extend(self._fallback[length], text[length])

    def _extend(self, matched: int, char: str) -> int:
        while matched > 0 and self.text[matched] != char:
            matched = self._fallback[matched]
        return matched + 1 if self.text[matched] == char else 0

    def advance(self, char: str) -> bool:
        """True if `char` completes an occurrence."""
        self.matched = self._extend(self.matched, char)
        if self.matched < len(self.text):
            return False
        self.matched = self._fallback[self.matched]
        return True


@dataclass(frozen=True, slots=True)
class Released:
    """Text that may be shown, and the stop string that ended it, if one did."""

    text: str
    matched: str | None = None


class StopStrings:
    """The stop string that is *completed* first ends the text, at its own start; of several
    completed by the same character, the longest. The result does not depend on how the text is
    cut into pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._needles = [_Needle(stop) for stop in stops]
        self._held = ""

    def feed(self, piece: str, is_armed: bool = True) -> Released:
        """Takes the next piece of text. Occurrences completed while not armed do not count."""
        text = self._held + piece
        for place, char in enumerate(piece, start=len(self._held) + 1):
            done = [needle.text for needle in self._needles if needle.advance(char)]
            if done and is_armed:
                longest = max(done, key=len)
                self._held = ""
                return Released(text[: place - len(longest)], longest)
        cut = len(text) - max((needle.matched for needle in self._needles), default=0)
        self._held = text[cut:]
        return Released(text[:cut])

    def flush(self) -> str:
        """The withheld text, once nothing more can come."""
        held, self._held = self._held, ""
        return held
