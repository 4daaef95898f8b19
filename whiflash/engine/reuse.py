"""Where a new sequence's first positions come from: a finished turn, a running one, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from whiflash.core.protocols import SequenceCache
from whiflash.engine.memory import KvMemory
from whiflash.engine.prefix import MIN_REUSE_TOKENS, PrefixStore
from whiflash.engine.prefix_entry import Ids, PrefixEntry, common_prefix_tokens
from whiflash.engine.sequence import Sequence

Sequences = Rows[Sequence]


@dataclass(frozen=True, slots=True)
class Match:
    """The longest prefix that others hold of a sequence: `common` tokens of an entry or of a
    running sequence."""

    common: int
    entry: PrefixEntry | None = None
    donor: Sequence | None = None

    @property
    def ids(self) -> Ids:
        """What the other holds."""
        if self.entry is not None:
            return self.entry.ids
        assert self.donor is not None
        return self.donor.ids[: self.donor_cache.length]

    @property
    def num_prompt(self) -> int:
        """The other's prompt tokens."""
        if self.entry is not None:
            return self.entry.num_prompt
        assert self.donor is not None
        return self.donor.num_prompt

    @property
    def donor_cache(self) -> SequenceCache:
        assert self.donor is not None
        assert self.donor.cache is not None
        return self.donor.cache


@dataclass(frozen=True, slots=True)
class Source:
    """What a sequence begins with. takes_over: the entry's own cache, else a copy."""

    match: Match | None
    takes_over: bool = False


def find_source(
    sequence: Sequence,
    needed: int,
    live: Sequences,
    prefixes: PrefixStore,
    memory: KvMemory,
) -> Source | None:
    """Makes room for a cache of `needed` bytes, its source in it; None where running sequences
    hold too much. An entry that should stay is taken over rather than given up when there is no
    room for it and a copy."""
    match = best_match(sequence, live, prefixes)
    entry = None if match is None else match.entry
    if match is None or entry is None:
        return Source(match) if memory.make_room(needed, live) else None
    is_next = prefixes.goes_on(entry, match.common, sequence.num_ids)
    if not is_next and memory.make_room(needed, live, entry):
        return Source(match)
    if memory.make_room(max(0, needed - entry.cache.num_bytes), live, entry):
        return Source(match, takes_over=True)
    if memory.make_room(needed, live):
        return Source(best_match(sequence, live, prefixes))
    return None


def best_match(sequence: Sequence, live: Sequences, prefixes: PrefixStore) -> Match | None:
    """The longest prefix wins, whether a finished turn left it or a running one holds it; among
    equals the finished one."""
    found = prefixes.best(sequence.request.namespace, sequence.ids)
    best = None if found is None else Match(found[1], entry=found[0])
    for other in live:
        if other.request.namespace != sequence.request.namespace or other.cache is None:
            continue
        committed = other.ids[: other.cache.length]
        common = min(common_prefix_tokens(committed, sequence.ids), sequence.num_ids - 1)
        if common >= MIN_REUSE_TOKENS and (best is None or common > best.common):
            best = Match(common, donor=other)
    return best


REASONS = ("whole_prompt", "end_of_turn", "in_answer", "in_prompt", "evicted", "nothing")


def why_it_ended(sequence: Sequence, match: Match | None, prefixes: PrefixStore) -> str:
    """Why no more of the prompt could be reused, one of REASONS:

    whole_prompt: nothing is left but the one token that must run;
    end_of_turn:  all that the earlier turn held is used;
    in_answer:    the earlier answer is not written as it was generated (reasoning cut off, a call
                  or its arguments re-rendered, text tokenised otherwise);
    in_prompt:    the earlier prompt differs: another conversation, an edited history, reasoning of
                  older turns cut off;
    evicted:      more was there and had to give way to others;
    nothing:      no turn of the namespace begins like this one.
    """
    common = 0 if match is None else match.common
    if common >= sequence.num_prompt - 1:
        return "whole_prompt"
    lost = prefixes.evicted_tokens(sequence.request.namespace, sequence.ids)
    if lost > max(common, MIN_REUSE_TOKENS - 1):
        return "evicted"
    if match is None:
        return "nothing"
    if common == len(match.ids):
        return "end_of_turn"
    return "in_answer" if common >= match.num_prompt else "in_prompt"
