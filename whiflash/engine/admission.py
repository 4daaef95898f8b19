"""Who may run: the bounded queue, the memory of each sequence, and who gives it up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from whiflash.core.errors import PromptTooLongError, QueueFullError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import SequenceCache, Target
from whiflash.engine.counters import Counters
from whiflash.engine.memory import KvMemory
from whiflash.engine.parking import NAMESPACE_SHARE, Parking
from whiflash.engine.prefix import PrefixStore
from whiflash.engine.reuse import Source, find_source, why_it_ended
from whiflash.engine.sequence import Sequence, State

FIRST_ALLOCATION_TOKENS = 128
"""Room for the answer in a new cache; it grows by doubling within its reservation."""


class Admission:
    """Reserves prompt, headroom and one round's scratch (`KvMemory`). When that runs out, finished
    turns give way, parked ones last, and then the youngest running one is preempted."""

    def __init__(
        self,
        target: Target,
        memory_bytes: int,
        max_batch: int,
        max_queue: int,
        max_scratch: int,
        on_drop: Callable[[int], None],
        counters: Counters,
    ) -> None:
        """`on_drop` hears the draft id of every finished turn whose KV is given up."""
        self._target = target
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._on_drop = on_drop
        self._counters = counters
        self.waiting: deque[Sequence] = deque()
        self.prefixes = PrefixStore(on_drop, Parking(int(NAMESPACE_SHARE * memory_bytes)))
        self.memory = KvMemory(target, memory_bytes, max_scratch, self.prefixes)
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
        needed, held = self.memory.most_bytes(request), self.memory.num_bytes
        if needed > held:
            raise PromptTooLongError(
                f"prompt and max_tokens need {needed >> 20} MiB of KV memory, the budget is "
                f"{held >> 20} MiB; lower max_tokens or raise memory",
                "max_tokens",
            )
        if len(self.waiting) + request.params.n > self._max_queue + self._max_batch:
            raise QueueFullError(
                f"{len(self.waiting)} sequences are waiting (max_queue {self._max_queue}); "
                "try again later"
            )

    def extend(self, running: Iterable[Sequence]) -> list[Sequence]:
        """Before a round: each running sequence reserves what the round may write, the oldest
        first. Returns those that were preempted for it, youngest first. The oldest never is, and
        what was admitted fits alone, so somebody always goes on."""
        live = sorted(running, key=lambda sequence: sequence.id)
        preempted: list[Sequence] = []
        for sequence in list(live):
            while sequence in live and not self.memory.grow(sequence, live):
                preempted.append(live.pop())
                assert live, "a sequence that fits alone found no room"
                self.preempt(preempted[-1])
        return preempted

    def preempt(self, sequence: Sequence) -> None:
        """Takes a running sequence's memory away. It is the first to be admitted again, with the
        same text before it: key, sampler, stops and grammar stay, its KV is computed anew."""
        assert sequence.cache is not None
        sequence.cache.release()
        sequence.cache = None
        sequence.reserved_bytes = 0
        sequence.state = State.PREEMPTED
        sequence.usage.preemptions += 1
        self._counters.preemptions += 1
        self.waiting.appendleft(sequence)

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
            self._begin(sequence)
            admitted.append(sequence)
        return admitted

    @staticmethod
    def _begin(sequence: Sequence) -> None:
        has_prefill = len(sequence.pending_prefill) > 0
        if sequence.state is State.WAITING:
            sequence.admitted_s = time.perf_counter()
            sequence.usage.queue_ms = 1e3 * (sequence.admitted_s - sequence.submitted_s)
        sequence.state = State.PREFILL if has_prefill else State.DECODE

    @staticmethod
    def _waits_for_sibling(sequence: Sequence, live: Iterable[Sequence]) -> bool:
        """Choices 1, 2, ... of a request copy the prompt's KV from choice 0 once it is there."""
        return sequence.index > 0 and any(
            other.ticket is sequence.ticket and other.state is State.PREFILL for other in live
        )

    def _take_memory(self, sequence: Sequence, live: list[Sequence]) -> bool:
        """Reserves, and makes the cache; False where a running sequence must finish first."""
        needed = self.memory.entry_bytes(sequence)
        source = find_source(sequence, needed, live, self.prefixes, self.memory)
        if source is None:
            return False
        if sequence.state is State.WAITING:
            self._note_reuse(sequence, source)
        sequence.cache = self._cache_of(sequence, source)
        sequence.reserved_bytes = max(needed, sequence.cache.num_bytes)
        return True

    def _note_reuse(self, sequence: Sequence, source: Source) -> None:
        """Once per sequence: what is reused when it comes back does not count."""
        match, counters = source.match, self._counters
        counters.reuse_ended[why_it_ended(sequence, match, self.prefixes)] += 1
        if match is None:
            return
        self.num_prefix_hits += 1
        counters.parked_hits += match.entry is not None and self.prefixes.is_parked(match.entry)
        sequence.usage.cached_tokens = min(match.common, sequence.num_prompt)

    def _cache_of(self, sequence: Sequence, source: Source) -> SequenceCache:
        match = source.match
        if match is None:
            first = sequence.num_ids + FIRST_ALLOCATION_TOKENS
            return self._target.new_cache(min(first, self.memory.entry_tokens(sequence)))
        if match.entry is None:
            return match.donor_cache.fork(match.common)
        if not source.takes_over:
            return self.prefixes.copy(match.entry, match.common)
        if sequence.state is State.PREEMPTED:
            self._on_drop(match.entry.draft_id)  # drafters still hold this sequence's own
        else:
            sequence.inherit_drafts(match.entry.draft_id)
        return self.prefixes.take_over(match.entry, match.common)

    def retire(self, sequence: Sequence) -> None:
        """A sequence finished: its KV becomes reusable, its reservation free."""
        cache, sequence.cache = sequence.cache, None
        sequence.reserved_bytes = 0
        if cache is not None:
            request = sequence.request
            self._counters.parked += self.prefixes.keep(
                request.namespace, sequence.ids, min(sequence.num_prompt, cache.length), cache,
                sequence.draft_id, parks=sequence.ended_in_call,
            )  # fmt: skip

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        self.prefixes.check_integrity()
        self.memory.check_integrity(running)
