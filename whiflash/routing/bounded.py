"""A table that forgets what was not used for longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """At most `most` entries; the one that was not touched for longest goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The entry, made and kept where there is none."""
        if key not in self._entries:
            self.put(key, make())
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def pop(self, key: Key) -> Value | None:
        """Takes the entry out; None where there is none."""
        return self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)

    def check_integrity(self) -> None:
        assert len(self._entries) <= self._most
