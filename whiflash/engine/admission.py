"""Who may run: the bounded queue, the memory budget, and reuse of prefixes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from whiflash.core.errors import PromptTooLongError, QueueFullError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import SequenceCache, Target
from whiflash.engine.prefix import MIN_REUSE_TOKENS, PrefixStore, common_prefix_tokens
from whiflash.engine.sequence import Sequence, State

FIRST_ALLOCATION_TOKENS = 128
"""Room for the answer in a new cache; it grows by doubling up to its reservation."""


class Admission:
    """Reserves, for each running sequence, the memory of its longest possible answer, so that a
    running turn never has to be stopped for memory."""

    def __init__(
        self,
        target: Target,
        memory_bytes: int,
        max_batch: int,
        max_queue: int,
        max_scratch: int,
        on_drop: Callable[[int], None],
    ) -> None:
        """`on_drop` hears the draft id of every finished turn whose KV is given up."""
        self._target = target
        self._memory_bytes = memory_bytes
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._max_scratch = max_scratch
        self.waiting: deque[Sequence] = deque()
        self.prefixes = PrefixStore(on_drop)
        self.num_prefix_hits = 0

    def check(self, request: GenerationRequest) -> None:
        """Raises PromptTooLongError for what can never run and QueueFullError for now."""
        limit = self._target.info.context_limit
        prefix_tokens = len(request.prompt_ids) + len(request.forced_ids)
        if prefix_tokens >= limit:
            raise PromptTooLongError(
                f"the prompt has {prefix_tokens} tokens, the context limit is {limit} and leaves "
                "room for no answer; shorten the prompt",
                "prompt",
            )
        needed = self._target.cache_bytes(self._most_tokens(request))
        if needed > self._memory_bytes:
            raise PromptTooLongError(
                f"prompt and max_tokens need {needed >> 20} MiB of KV memory, the budget is "
                f"{self._memory_bytes >> 20} MiB; lower max_tokens or raise memory",
                "max_tokens",
            )
        if len(self.waiting) + request.params.n > self._max_queue + self._max_batch:
            raise QueueFullError(
                f"{len(self.waiting)} sequences are waiting (max_queue {self._max_queue}); "
                "try again later"
            )

    def _most_tokens(self, request: GenerationRequest) -> int:
        answer = len(request.prompt_ids) + request.params.max_tokens
        return min(answer, self._target.info.context_limit) + self._max_scratch

    def admit(self, running: list[Sequence]) -> list[Sequence]:
        """Moves sequences, oldest first, from the queue to prefill while slots and memory last.
        Their caches already hold what an earlier prompt left."""
        admitted: list[Sequence] = []
        while self.waiting and len(running) + len(admitted) < self._max_batch:
            sequence = self.waiting[0]
            live = [*running, *admitted]
            if self._waits_for_sibling(sequence, live) or not self._take_memory(sequence, live):
                break
            self.waiting.popleft()
            sequence.state = State.PREFILL
            sequence.admitted_s = time.perf_counter()
            sequence.usage.queue_ms = 1e3 * (sequence.admitted_s - sequence.submitted_s)
            admitted.append(sequence)
        return admitted

    @staticmethod
    def _waits_for_sibling(sequence: Sequence, live: Iterable[Sequence]) -> bool:
        """Choices 1, 2, ... of a request copy the prompt's KV from choice 0 once it is there."""
        return sequence.index > 0 and any(
            other.ticket is sequence.ticket and other.state is State.PREFILL for other in live
        )

    def _take_memory(self, sequence: Sequence, live: list[Sequence]) -> bool:
        reserve = self._target.cache_bytes(self._most_tokens(sequence.request))
        reserved = sum(other.reserved_bytes for other in live)
        namespace = sequence.request.namespace
        found = self.prefixes.best(namespace, sequence.ids)
        spare = found[0] if found else None
        while reserved + reserve + self.prefixes.num_bytes > self._memory_bytes:
            if not self.prefixes.evict_one(spare):
                if spare is None:
                    return False  # a running sequence must finish first
                spare = found = None
        sequence.cache = self._cache_for(sequence, live)
        sequence.reserved_bytes = max(reserve, sequence.cache.num_bytes)
        return True

    def _cache_for(self, sequence: Sequence, live: list[Sequence]) -> SequenceCache:
        """The longest prefix wins, whether a finished turn left it or a running one holds it."""
        finished = self.prefixes.best(sequence.request.namespace, sequence.ids)
        donor, common = self._best_live(sequence, live)
        if finished is not None and finished[1] >= common:
            claimed = self.prefixes.claim(*finished)
            cache = claimed.cache
            if claimed.draft_id is not None:
                sequence.inherit_drafts(claimed.draft_id)
        elif donor is not None and donor.cache is not None:
            cache = donor.cache.fork(common)
        else:
            first = sequence.num_ids + FIRST_ALLOCATION_TOKENS
            return self._target.new_cache(min(first, self._most_tokens(sequence.request)))
        self.num_prefix_hits += 1
        sequence.usage.cached_tokens = min(cache.length, sequence.num_prompt)
        return cache

    @staticmethod
    def _best_live(sequence: Sequence, live: Iterable[Sequence]) -> tuple[Sequence | None, int]:
        best: Sequence | None = None
        best_common = 0
        for other in live:
            if other.request.namespace != sequence.request.namespace or other.cache is None:
                continue
            committed = other.ids[: other.cache.length]
            common = min(common_prefix_tokens(committed, sequence.ids), sequence.num_ids - 1)
            if common >= MIN_REUSE_TOKENS and common > best_common:
                best, best_common = other, common
        return best, best_common

    def retire(self, sequence: Sequence) -> None:
        """A sequence finished: its KV becomes reusable, its reservation free."""
        cache, sequence.cache = sequence.cache, None
        sequence.reserved_bytes = 0
        if cache is not None:
            self.prefixes.keep(sequence.request.namespace, sequence.ids, cache, sequence.draft_id)

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        self.prefixes.check_integrity()
        held = sum(s.reserved_bytes for s in running) + self.prefixes.num_bytes
        assert held <= self._memory_bytes, f"{held} bytes held of {self._memory_bytes}"
