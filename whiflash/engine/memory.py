"""KV memory: what running sequences have reserved, what finished turns left, what is free.

A running sequence reserves what its cache may hold after the next round, and more beforehand, so
that it is seldom stopped; the longest possible answer is reserved by nobody."""

from __future__ import annotations

from collections.abc import Iterable

from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Target
from whiflash.engine.prefix import PrefixStore
from whiflash.engine.prefix_entry import PrefixEntry
from whiflash.engine.sequence import Sequence

HEADROOM_SHARE = 0.125
"""Part of the tokens that a sequence may still write which admission reserves for it."""

MIN_HEADROOM_TOKENS = 64
"""Below this a preempted sequence would be readmitted for a few rounds only."""


class KvMemory:
    """The arithmetic of one budget. Reservations only ever grow to what a cache really takes:
    caches double, and `Target.cache_bytes` counts the doubling."""

    def __init__(
        self, target: Target, num_bytes: int, max_scratch: int, prefixes: PrefixStore
    ) -> None:
        self.num_bytes = num_bytes
        self._target = target
        self._max_scratch = max_scratch
        self._prefixes = prefixes

    def most_bytes(self, request: GenerationRequest) -> int:
        """What the longest possible answer takes."""
        return self._target.cache_bytes(self._last_token(request) + self._max_scratch)

    def entry_tokens(self, sequence: Sequence) -> int:
        """Prompt, headroom and one round's scratch."""
        left = self._last_token(sequence.request) - sequence.num_ids
        headroom = max(MIN_HEADROOM_TOKENS, int(HEADROOM_SHARE * left))
        return sequence.num_ids + min(headroom, left) + self._max_scratch

    def entry_bytes(self, sequence: Sequence) -> int:
        """What admission reserves."""
        return self._target.cache_bytes(self.entry_tokens(sequence))

    def _last_token(self, request: GenerationRequest) -> int:
        answer = len(request.prompt_ids) + request.params.max_tokens
        return min(answer, self._target.info.context_limit)

    def grow(self, sequence: Sequence, live: Iterable[Sequence]) -> bool:
        """Reserves one more round for a running sequence, evicting what finished turns left;
        False (and no change) where running ones hold the rest."""
        needed = self._target.cache_bytes(sequence.num_ids + self._max_scratch)
        if needed <= sequence.reserved_bytes:
            return True
        if not self.make_room(needed - sequence.reserved_bytes, live):
            return False
        sequence.reserved_bytes = needed
        return True

    def make_room(
        self, needed: int, live: Iterable[Sequence], spare: PrefixEntry | None = None
    ) -> bool:
        """Evicts entries other than `spare` until `needed` more bytes fit beside `live`; False,
        and nothing is evicted, where that would not be enough."""
        free = self.num_bytes - sum(sequence.reserved_bytes for sequence in live)
        if needed + (spare.cache.num_bytes if spare is not None else 0) > free:
            return False
        while needed + self._prefixes.num_bytes > free:
            self._prefixes.evict_one(spare)
        return True

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        held = sum(s.reserved_bytes for s in running) + self._prefixes.num_bytes
        assert held <= self.num_bytes, f"{held} bytes held of {self.num_bytes}"
