"""Looking for markers in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


def find_first(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """Position and marker of the first one in `text`, or None. No marker may hold another."""
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    return min(found, default=None)


def held_length(text: str, markers: Sequence[str]) -> int:
    """Characters at the end of `text` that may yet become a marker, with the newlines before
    them: a marker takes the newlines beside it with it."""
    longest = max((len(marker) for marker in markers), default=1) - 1
    start = len(text)
    for at in range(max(0, len(text) - longest), len(text)):
        if any(marker.startswith(text[at:]) for marker in markers):
            start = at
            break
    return len(text) - len(text[:start].rstrip("\n"))
