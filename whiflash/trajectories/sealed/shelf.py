"""The segment files of one namespace, as the last process left them."""

from __future__ import annotations

import logging
from pathlib import Path

from whiflash.trajectories.errors import CorruptRecordError
from whiflash.trajectories.sealed.file import PART_SUFFIX, segment_numbers, segment_path
from whiflash.trajectories.sealed.segment import Segment

logger = logging.getLogger(__name__)


def found_segments(folder: Path, namespace: str) -> tuple[list[Segment], int]:
    """The sound ones, and how many were not. Removed are those that a crash left half-written,
    those whose runs a newer one took over, and those that are not sound: the log holds it all.
    Raises OSError."""
    for path in folder.glob(f"*{PART_SUFFIX}"):
        path.unlink(missing_ok=True)
    found: dict[int, Segment] = {}
    num_corrupt = 0
    for number in segment_numbers(folder):
        path = segment_path(folder, number)
        try:
            found[number] = Segment.opened(path, namespace)
        except (CorruptRecordError, ValueError) as error:
            num_corrupt += 1
            logger.warning("%s; it is built again from the log", error)
            path.unlink(missing_ok=True)
    replaced = {number for segment in found.values() for number in segment.data.replaces}
    for number in replaced & set(found):
        found.pop(number).remove_file()
    return list(found.values()), num_corrupt


def last_number(folder: Path) -> int:
    """The highest that a file there has or had; 0 for none."""
    return max(segment_numbers(folder), default=0)
