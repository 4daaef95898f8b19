"""Frames in a segment file: found one behind the other, past damaged bytes, up to a torn end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from whiflash.trajectories import codec
from whiflash.trajectories.codec import Entry
from whiflash.trajectories.errors import CorruptRecordError

WINDOW_BYTES = 256 * 1024


class Found(NamedTuple):
    """A frame at bytes [start, end) of the segment. `entry` is None where a record was deleted.
    skipped: damaged bytes in front of it."""

    start: int
    end: int
    entry: Entry | None
    skipped: int = 0


def scan(data: bytes, base: int = 0) -> Iterator[Found]:
    """Sound frames in `data`, which begins at byte `base` of the file. A frame that is cut off by
    the end of `data` is not reported; damaged bytes are reported with the frame behind them."""
    offset, skipped = 0, 0
    while offset < len(data):
        found = _frame_at(data, offset)
        if found is not None:
            end, entry = found
            yield Found(base + offset, base + end, entry, skipped)
            offset, skipped = end, 0
            continue
        following = data.find(codec.MAGIC, offset + 1)
        if following < 0:
            return
        skipped += following - offset
        offset = following


def _frame_at(data: bytes, offset: int) -> tuple[int, Entry | None] | None:
    """The end and the entry of the frame at `offset`; None if there is no whole, sound one."""
    header = data[offset : offset + codec.HEADER.size]
    if len(header) < codec.HEADER.size:
        return None
    try:
        end = offset + codec.frame_size(header)
        if end > len(data):
            return None
        return end, codec.decode(data[offset:end])
    except CorruptRecordError:
        return None


def sound_end(path: Path) -> int:
    """Bytes up to the end of the last sound frame: what a crash left behind that is torn."""
    end = 0
    for found in scan(path.read_bytes()):
        end = found.end
    return end


def read_frames(path: Path, start: int, end: int, max_frames: int) -> list[Found]:
    """Up to `max_frames` frames from byte `start` on, none beyond byte `end`. May be fewer though
    more follow; none only if no sound frame is left. Raises OSError."""
    window = WINDOW_BYTES
    with path.open("rb") as file:
        while True:
            file.seek(start)
            data = file.read(min(window, end - start))
            frames = []
            for found in scan(data, start):
                frames.append(found)
                if len(frames) == max_frames:
                    return frames
            # A frame larger than the window, or damaged bytes all over it: look further.
            if frames or start + window >= end:
                return frames
            window *= 4
