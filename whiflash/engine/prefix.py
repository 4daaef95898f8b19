"""Prefix reuse: KV of finished turns, by namespace, taken over or copied by later prompts.

What drafters hold of a finished turn stays with its entry, under the turn's draft id, and goes
where the KV goes (design.md 6: drafter K/V survive turns)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.core.protocols import SequenceCache

MIN_REUSE_TOKENS = 16
"""Shorter common prefixes (a template's first words) are not worth a copy."""

MAX_LOST_TAIL_TOKENS = 64
"""An entry is taken over, not copied, if at most this much of it would be cut off: the tail that
a chat template renders anew, as opposed to another conversation's turn."""


def common_prefix_tokens(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """Length of the longest common prefix of two id arrays."""
    limit = min(len(a), len(b))
    differs = np.flatnonzero(a[:limit] != b[:limit])
    return int(differs[0]) if len(differs) else limit


@dataclass(slots=True, eq=False)
class PrefixEntry:
    """ids[i] is the id whose KV stands at position i of `cache`; drafters know the turn that left
    it as `draft_id`."""

    namespace: str
    ids: npt.NDArray[np.int32]
    cache: SequenceCache
    draft_id: int
    last_used: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A cache of the common prefix. `draft_id`: what drafters hold was taken over with it, and
    must be cropped to the same length; None where the cache is a copy."""

    cache: SequenceCache
    draft_id: int | None


class PrefixStore:
    """Least recently used entries go first when memory is asked for. No lookup spans two
    namespaces. `on_drop` hears the draft id of every turn whose entry ends."""

    def __init__(self, on_drop: Callable[[int], None]) -> None:
        self._on_drop = on_drop
        self._entries: list[PrefixEntry] = []
        self._clock = 0

    @property
    def num_bytes(self) -> int:
        return sum(entry.cache.num_bytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def keep(
        self, namespace: str, ids: npt.NDArray[np.int32], cache: SequenceCache, draft_id: int
    ) -> None:
        """Takes ownership of a finished sequence's cache; `ids` are those of its positions."""
        if cache.length < MIN_REUSE_TOKENS:
            cache.release()
            self._on_drop(draft_id)
            return
        self._clock += 1
        held = ids[: cache.length].copy()
        self._entries.append(PrefixEntry(namespace, held, cache, draft_id, self._clock))

    def best(self, namespace: str, prompt: npt.NDArray[np.int32]) -> tuple[PrefixEntry, int] | None:
        """The entry of this namespace with the longest usable common prefix. At least one prompt
        token is left to run, since its logits start the answer."""
        found: tuple[PrefixEntry, int] | None = None
        for entry in self._entries:
            if entry.namespace != namespace:
                continue
            common = min(common_prefix_tokens(entry.ids, prompt), len(prompt) - 1)
            if common >= MIN_REUSE_TOKENS and (found is None or common > found[1]):
                found = (entry, common)
        return found

    def claim(self, entry: PrefixEntry, common: int) -> Claimed:
        """A cache holding exactly the first `common` positions of `entry`."""
        self._clock += 1
        entry.last_used = self._clock
        if len(entry.ids) - common > MAX_LOST_TAIL_TOKENS:
            return Claimed(entry.cache.fork(common), None)
        self._entries.remove(entry)
        entry.cache.truncate(common)
        return Claimed(entry.cache, entry.draft_id)

    def evict_one(self, spare: PrefixEntry | None = None) -> bool:
        """Releases the least recently used entry other than `spare`; False if there is none."""
        candidates: Iterable[PrefixEntry] = (e for e in self._entries if e is not spare)
        oldest = min(candidates, key=lambda entry: entry.last_used, default=None)
        if oldest is None:
            return False
        self._entries.remove(oldest)
        oldest.cache.release()
        self._on_drop(oldest.draft_id)
        return True

    def clear(self) -> None:
        while self.evict_one():
            pass

    def check_integrity(self) -> None:
        for entry in self._entries:
            assert entry.cache.length == len(entry.ids)
            entry.cache.check_integrity()
