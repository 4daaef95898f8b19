"""Booking rooms: a form of four fields, then one sentence; one room of each session is taken."""

from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.tools import World


def _ask(title: str, day: str, time: str, room: str) -> str:
    return f"Book room {room} on {day} at {time} for the {title}."


def _example(title: str, day: str, time: str, room: str, taken_by: str = "") -> Example:
    answer = f"The {title} is booked in room {room} on {day} at {time}."
    if taken_by:
        answer = f"Room {room} is taken by the {taken_by}. Please name another time."
    call = tool_call("book_room", title=title, day=day, time=time, room=room)
    return Example(_ask(title, day, time, room), (call,), answer)


KIND = Kind(
    name="rooms",
    system="You book meeting rooms.",
    tools=("book_room",),
    examples=(
        _example("budget review", "Monday", "10:00", "Green"),
        _example("design talk", "Thursday", "14:30", "Blue", taken_by="press call"),
        _example("staff meeting", "Tuesday", "08:30", "White"),
        _example("yearly report", "Friday", "16:00", "Green"),
    ),
    world=World(events={("Thursday", "14:30", "Blue"): "press call"}),
)

FIRST = Scenario(
    "rooms",
    KIND,
    (
        _ask("sales meeting", "Wednesday", "09:00", "Red"),
        _ask("safety training", "Monday", "15:00", "Blue"),
    ),
    World(events={("Monday", "15:00", "Blue"): "team lunch"}),
)
SECOND = Scenario(
    "rooms, other meetings",
    KIND,
    (
        _ask("job interview", "Tuesday", "13:00", "Blue"),
        _ask("product demo", "Thursday", "10:30", "Red"),
    ),
    World(events={("Thursday", "10:30", "Red"): "board meeting"}),
)
