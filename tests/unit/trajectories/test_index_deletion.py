"""Deletion in the live index: gone at once, the rest as found as before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.index import LiveIndex
from whiflash.trajectories.index.live import MIN_BYTES
from whiflash.trajectories.record import TrajectoryRecord


def texts_in(index: LiveIndex) -> list[list[int]]:
    """The runs that the index holds, oldest first, read back from its automata."""
    return [
        part.automaton.text[span.start + 1 : span.end + 1].tolist()
        for part in index._parts
        for span in part.spans
    ]


def record(number: int, run_id: str, subject: str = "", num_tokens: int = 40) -> TrajectoryRecord:
    tokens = np.random.default_rng(number).integers(0, 50, num_tokens)
    return TrajectoryRecord("a", run_id, tokens, subject=subject)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 90)), max_size=25),
    st.sampled_from(["run", "subject", "namespace"]),
)
def test_what_is_left_is_what_was_not_covered(
    rows: list[tuple[int, int, int]], kind_name: str
) -> None:
    index = LiveIndex("a", MIN_BYTES)
    records = [
        record(number, f"r{run}", f"s{subject}", length)
        for number, (run, subject, length) in enumerate(rows)
    ]
    for entry in records:
        index.add(entry)
    held = texts_in(index)
    kind = DeletionKind(kind_name)
    value = {"run": "r1", "subject": "s1", "namespace": ""}[kind_name]
    deletion = Deletion("a", kind, value)
    gone = [r.tokens.tolist() for r in records if deletion.covers(r)]
    kept = [r.tokens.tolist() for r in records if not deletion.covers(r)]
    index.delete(deletion)
    index.check_integrity()
    left = texts_in(index)
    assert all(text in kept for text in left)
    assert len(left) == len([text for text in held if text in kept or text not in gone])
    index.add(record(1000, "r1"))
    index.check_integrity()


def test_repeats_are_counted_anew_after_a_deletion() -> None:
    index = LiveIndex("a", MIN_BYTES)
    same = record(1, "r1")
    for _ in range(12):
        index.add(same)
    assert index.num_repeats == 4
    index.delete(Deletion("a", DeletionKind.RUN, "r1"))
    assert index.num_tokens == 0
    index.add(record(1, "r2"))
    assert index.num_tokens == 40
    index.clear()
    assert index.num_tokens == 0
    index.check_integrity()
