"""What a caller has of one choice, and what a resumed stream must not give it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from whiflash.api.v1 import stream_pb2 as pb
from whiflash.client.errors import ResumeError

_TEXTS = (
    pb.PARSE_EVENT_KIND_REASONING,
    pb.PARSE_EVENT_KIND_CONTENT,
    pb.PARSE_EVENT_KIND_ARGUMENTS,
)


class Size(NamedTuple):
    """Of a piece: ids, characters of its text, and units of its events: one for each character
    of a text, one for each other event."""

    ids: int = 0
    characters: int = 0
    units: int = 0

    def plus(self, other: Size) -> Size:
        return Size(*(mine + its for mine, its in zip(self, other, strict=True)))

    def minus(self, other: Size) -> Size:
        """Not below 0."""
        return Size(*(max(0, mine - its) for mine, its in zip(self, other, strict=True)))


class Progress:
    """One choice over several connections.

    One choice goes on behind the delivered ids. Several are written anew, the same by their seed;
    rounds may cut the text elsewhere, so what is repeated is counted, and dropped; its ids must be
    the same.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.is_ended = False
        self._total = Size()
        self._skip = Size()
        self._num_seen = 0  # ids that the present connection was given or has brought

    def resume(self, *, with_forced_ids: bool) -> list[int]:
        """A new connection begins. The ids to force: all that were delivered, or none."""
        self._skip = Size() if with_forced_ids else self._total
        self._num_seen = len(self.ids) - self._skip.ids
        return self.ids[: self._num_seen]

    def take(self, piece: pb.Piece) -> pb.Piece | None:
        """What of `piece` is new; None if nothing is. Raises ResumeError if the part that the
        caller already has is another one now."""
        self._check_ids(piece)
        new = _behind(piece, self._skip)
        self._skip = self._skip.minus(_size(piece))
        size = _size(new)
        if not any(size):
            return None
        self.ids.extend(new.token_ids)
        self._total = self._total.plus(size)
        return new

    def _check_ids(self, piece: pb.Piece) -> None:
        start, count = self._num_seen, len(piece.token_ids)
        have = self.ids[start : start + count]
        if list(piece.token_ids[: len(have)]) != have:
            raise ResumeError("the stream broke, and the server writes another text now")
        self._num_seen += count


def _size(piece: pb.Piece) -> Size:
    return Size(len(piece.token_ids), len(piece.text), sum(map(_units, piece.events)))


def _units(event: pb.ParseEvent) -> int:
    return len(event.text) if event.kind in _TEXTS else 1


def _behind(piece: pb.Piece, skip: Size) -> pb.Piece:
    if not any(skip):
        return piece
    new = pb.Piece()
    new.CopyFrom(piece)
    del new.token_ids[: skip.ids]
    del new.logprobs[: skip.ids]
    new.text = piece.text[skip.characters :]
    del new.events[:]
    new.events.extend(_events_behind(piece.events, skip.units))
    return new


def _events_behind(events: Iterable[pb.ParseEvent], skip: int) -> Iterable[pb.ParseEvent]:
    for event in events:
        units = _units(event)
        if units <= skip:
            skip -= units
        elif skip:
            yield pb.ParseEvent(kind=event.kind, text=event.text[skip:], call=_call(event))
            skip = 0
        else:
            yield event


def _call(event: pb.ParseEvent) -> int | None:
    return event.call if event.HasField("call") else None
