"""What all scenarios share: the model, the rooms that are booked, the check of an answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "agents"))
import rooms

MODEL = "smollm2-135m"
MAX_STEPS = 4
EndTurn = Callable[[], None]
Scenario = Callable[[str, EndTurn], None]


class Room(BaseModel):
    """A room of the office."""

    name: str
    seats: int


def reset() -> None:
    """The rooms as they were at first."""
    rooms.BOOKED.clear()
    rooms.BOOKED["Thursday", "14:30", "Blue"] = "press call"


def check_answer(question: str, answer: str | None) -> None:
    """The tool really ran, and the model says what it did."""
    room, day = question.split()[2], question.split()[4]
    assert answer is not None
    assert room in answer
    assert day in answer
    assert any(day in slot[0] and room in slot[2] for slot in rooms.BOOKED)
