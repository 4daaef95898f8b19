"""What is repeated after a break is dropped, wherever the rounds cut the text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.api.v1 import stream_pb2 as pb
from whiflash.client.errors import ResumeError
from whiflash.client.progress import Progress

TEXT = "reads the file, calls it twice"
IDS = [ord(character) for character in TEXT]


def unit(position: int) -> pb.ParseEvent:
    """The event of one character: text, but for commas, which start a call."""
    if TEXT[position] == ",":
        return pb.ParseEvent(kind=pb.PARSE_EVENT_KIND_CALL_START, text="tool", call=0)
    return pb.ParseEvent(kind=pb.PARSE_EVENT_KIND_CONTENT, text=TEXT[position])


def events(start: int, end: int) -> list[pb.ParseEvent]:
    """Neighbouring texts are one event, as the parser writes them."""
    joined: list[pb.ParseEvent] = []
    for event in map(unit, range(start, end)):
        if joined and joined[-1].kind == event.kind == pb.PARSE_EVENT_KIND_CONTENT:
            joined[-1].text += event.text
        else:
            joined.append(event)
    return joined


def pieces(start: int, cuts: set[int]) -> list[pb.Piece]:
    """From `start` on, in rounds that end at `cuts`; text and events lag one id behind. Nothing
    where the answer was complete."""
    if start == len(IDS):
        return []
    ends = [start, *sorted(cut for cut in cuts if cut > start), len(IDS)]
    made = []
    for first, last in pairwise(ends):
        shown = (max(0, first - 1), last if last == len(IDS) else max(0, last - 1))
        made.append(
            pb.Piece(
                token_ids=IDS[first:last],
                text=TEXT[slice(*shown)],
                events=events(*shown),
                logprobs=[pb.TokenLogprob(token_id=token) for token in IDS[first:last]],
            )
        )
    return made


cut_sets = st.sets(st.integers(1, len(IDS) - 1), max_size=12)


@given(st.lists(st.tuples(cut_sets, st.integers(0, 8)), max_size=5), cut_sets, st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_breaks_give_the_whole_once(
    attempts: list[tuple[set[int], int]], last: set[int], with_forced_ids: bool
) -> None:
    progress, got = Progress(), list[pb.Piece]()
    for cuts, num_pieces in [*attempts, (last, len(IDS) + 1)]:
        forced = progress.resume(with_forced_ids=with_forced_ids)
        assert forced == (IDS[: len(progress.ids)] if with_forced_ids else [])
        for piece in pieces(len(forced), cuts)[:num_pieces]:
            new = progress.take(piece)
            got.extend([new] if new is not None else [])
    assert [token for piece in got for token in piece.token_ids] == IDS
    assert [entry.token_id for piece in got for entry in piece.logprobs] == IDS
    assert "".join(piece.text for piece in got) == TEXT
    told = "".join(
        "," if event.kind == pb.PARSE_EVENT_KIND_CALL_START else event.text
        for piece in got
        for event in piece.events
    )
    assert told == TEXT


def test_another_text_is_not_mixed_in() -> None:
    progress = Progress()
    progress.take(pb.Piece(token_ids=[1, 2], text="ab"))
    progress.resume(with_forced_ids=False)
    with pytest.raises(ResumeError):
        progress.take(pb.Piece(token_ids=[1, 3], text="ac"))
