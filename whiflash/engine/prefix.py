"""Prefix reuse: KV of finished turns, by namespace, taken over or copied by later prompts.

What drafters hold of a finished turn stays with its entry, under the turn's draft id, and goes
where the KV goes (design.md 6: drafter K/V survive turns)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from whiflash.core.protocols import SequenceCache
from whiflash.engine.parking import Parking
from whiflash.engine.prefix_entry import Ids, PrefixEntry, common_prefix_tokens

MIN_REUSE_TOKENS = 16
"""Shorter common prefixes (a template's first words) are not worth a copy."""

MAX_LOST_TAIL_TOKENS = 64
"""An entry is taken over, not copied, if at most this much of it would be cut off: then a copy
costs more than what is lost."""

MAX_HEADER_TOKENS = 4
"""Tokens at a prompt's end that the template leaves out of the next one (Qwen3 without thinking:
an empty pair of `<think>` marks). One less than what stands behind two different questions."""

MAX_EVICTED = 32
"""Evicted entries whose ids are remembered, so that lost reuse can be told from new text."""


class PrefixStore:
    """What is least worth keeping goes first when memory is asked for (`Parking.worth`). No lookup
    spans two namespaces. `on_drop` hears the draft id of every turn whose entry ends."""

    def __init__(self, on_drop: Callable[[int], None], parking: Parking) -> None:
        self._on_drop = on_drop
        self._parking = parking
        self._entries: list[PrefixEntry] = []
        self._evicted: deque[tuple[str, Ids]] = deque(maxlen=MAX_EVICTED)
        self._clock = 0

    @property
    def num_bytes(self) -> int:
        return sum(entry.cache.num_bytes for entry in self._entries)

    @property
    def num_parked(self) -> int:
        return sum(self.is_parked(entry) for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def is_parked(self, entry: PrefixEntry) -> bool:
        return self._parking.is_parked(entry)

    def keep(
        self,
        namespace: str,
        ids: Ids,
        num_prompt: int,
        cache: SequenceCache,
        draft_id: int,
        parks: bool = False,
    ) -> bool:
        """Takes ownership of a finished sequence's cache; `ids` are those of its positions. Whether
        the turn is parked now, which `parks` asks for."""
        if cache.length < MIN_REUSE_TOKENS:
            cache.release()
            self._on_drop(draft_id)
            return False
        self._clock += 1
        held = ids[: cache.length].copy()
        entry = PrefixEntry(namespace, held, num_prompt, cache, draft_id, self._clock)
        is_parked = parks and self._parking.park(entry, self._entries)
        self._entries.append(entry)
        return is_parked

    def holds(self, entry: PrefixEntry) -> bool:
        """Whether its KV is still there, as its turn left it."""
        return entry in self._entries

    def left_by(self, draft_id: int) -> PrefixEntry | None:
        """What the turn left that drafters know under that id."""
        return next((entry for entry in self._entries if entry.draft_id == draft_id), None)

    def best(self, namespace: str, prompt: Ids) -> tuple[PrefixEntry, int] | None:
        """The entry of this namespace with the longest usable common prefix; among equals one that
        the prompt goes on from. At least one prompt token is left to run, since its logits start
        the answer."""
        found: tuple[PrefixEntry, int] | None = None
        for entry in self._entries:
            if entry.namespace != namespace:
                continue
            common = min(common_prefix_tokens(entry.ids, prompt), len(prompt) - 1)
            if common < MIN_REUSE_TOKENS or (found is not None and common < found[1]):
                continue
            if found is None or common > found[1] or self.goes_on(entry, common, len(prompt)):
                found = (entry, common)
        return found

    def goes_on(self, entry: PrefixEntry, common: int, num_prompt: int) -> bool:
        """Whether a prompt of `num_prompt` ids is the same conversation's next turn, so that the
        entry may be taken over: it holds the turn's whole prompt and more, and at most the answer
        was written anew by the template (reasoning cut off, calls re-rendered)."""
        is_next = num_prompt > entry.num_prompt <= common + MAX_HEADER_TOKENS
        if self.is_parked(entry):
            return is_next
        return is_next or len(entry.ids) - common <= MAX_LOST_TAIL_TOKENS

    def take_over(self, entry: PrefixEntry, common: int) -> SequenceCache:
        """The entry's own cache, cut to the first `common` positions; the entry ends. What drafters
        hold of its turn is the caller's now, to be cropped to the same length."""
        self._entries.remove(entry)
        entry.cache.truncate(common)
        return entry.cache

    def copy(self, entry: PrefixEntry, common: int) -> SequenceCache:
        """A copy of the first `common` positions; the entry stays."""
        self._clock += 1
        entry.last_used = self._clock
        return entry.cache.fork(common)

    def evict_one(self, spare: PrefixEntry | None = None) -> bool:
        """Releases what is least worth keeping other than `spare`; False if there is nothing."""
        candidates = (entry for entry in self._entries if entry is not spare)
        worst = min(candidates, key=self._parking.worth, default=None)
        if worst is None:
            return False
        self._entries.remove(worst)
        self._evicted.append((worst.namespace, worst.ids))
        worst.cache.release()
        self._on_drop(worst.draft_id)
        return True

    def evicted_tokens(self, namespace: str, prompt: Ids) -> int:
        """Longest common prefix with what was evicted of late."""
        known = (ids for owner, ids in self._evicted if owner == namespace)
        return max((common_prefix_tokens(ids, prompt) for ids in known), default=0)

    def clear(self) -> None:
        while self.evict_one():
            pass
        self._evicted.clear()

    def check_integrity(self) -> None:
        for entry in self._entries:
            assert entry.cache.length == len(entry.ids)
            entry.cache.check_integrity()
        self._parking.check_integrity(self._entries)
