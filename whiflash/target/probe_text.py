"""Text that self-test and measurements run on: random K/V would hide or invent differences."""

from __future__ import annotations

from collections.abc import Sequence

from whiflash.core.protocols import Tokenizer

_TEXT = """Release notes for the parcel service, spring edition.

The planner now reads every depot's opening hours before it builds a route, so a van no longer
waits at a closed gate. Depots report their hours once a day; a depot that stays silent keeps the
hours of the week before, and the dashboard marks it in yellow until somebody has called there.

def next_stop(route, clock):
    for stop in route:
        if stop.opens <= clock < stop.closes:
            return stop
    raise ValueError(f"no open stop after {clock:%H:%M}")

{"depot": "north", "vans": 14, "hours": {"open": "06:30", "close": "19:00"}, "silent": false}
{"depot": "harbour", "vans": 9, "hours": {"open": "05:00", "close": "17:30"}, "silent": true}

Question: which of the two depots has to be called, and why? Answer in one sentence.
The harbour depot has to be called, because it has not reported its hours since last week and the
planner is still working with the old ones; the north depot reported this morning as usual.

Known faults: parcels above thirty kilograms are still offered to bicycle couriers in the evening;
the map forgets the chosen layer when the window is resized; exporting more than ten thousand rows
takes about a minute. A fix for the first is being tested in three towns and will follow in May.
"""


def probe_ids(tokenizer: Tokenizer, vocab_size: int, num_tokens: int) -> list[int]:
    """`num_tokens` ids of ordinary text (prose, code, JSON), all below `vocab_size`."""
    ids = [token % vocab_size for token in tokenizer.encode(_TEXT)] or [0]
    return _repeat(ids, num_tokens)


def _repeat(ids: Sequence[int], count: int) -> list[int]:
    times = -(-count // len(ids))
    return [token for _ in range(times) for token in ids][:count]
