"""Opening tickets: the user's words become a form, then one sentence."""

from whiflash.cli.demo.scenarios import Example, Kind, Scenario, tool_call
from whiflash.cli.demo.tools import World


def _ask(title: str, team: str, priority: str) -> str:
    return f"Ticket for the {team} team, priority {priority}: {title}."


def _example(number: int, title: str, team: str, priority: str) -> Example:
    return Example(
        _ask(title, team, priority),
        (tool_call("open_ticket", title=title, team=team, priority=priority),),
        f"I opened ticket {number} for the {team} team with priority {priority}.",
    )


KIND = Kind(
    name="tickets",
    system="You open tickets.",
    tools=("open_ticket",),
    examples=(
        _example(101, "the printer on floor 2 is out of toner", "printing", "low"),
        _example(102, "the wireless in the lobby is down", "network", "high"),
        _example(103, "the password of Mr Lund has expired", "accounts", "high"),
        _example(104, "the phone line in room 8 is noisy", "network", "low"),
        _example(105, "the scanner leaves black lines", "printing", "low"),
    ),
)
_OPEN = {105: {"title": "the scanner leaves black lines"}}

FIRST = Scenario(
    "tickets",
    KIND,
    (
        _ask("the cable in room 14 is broken", "network", "low"),
        _ask("the printer in the archive prints blank pages", "printing", "high"),
    ),
    World(tickets=_OPEN),
)
SECOND = Scenario(
    "tickets, other reports",
    KIND,
    (
        _ask("the printer at the reception is noisy", "printing", "low"),
        _ask("the wireless in the canteen is slow", "network", "high"),
    ),
    World(tickets=_OPEN),
)
