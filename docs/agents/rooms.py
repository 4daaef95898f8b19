"""What the agents here do: book meeting rooms, with one real tool.

A model of 135M parameters learns the form of a call from examples, so a conversation starts with
four. A larger one needs none.
"""

import json
import os
import socket
import sys
from urllib.parse import urlsplit

SYSTEM = "You book meeting rooms."
BOOKED = {("Thursday", "14:30", "Blue"): "press call"}

EXAMPLES = (
    ("budget review", "Monday", "10:00", "Green"),
    ("design talk", "Thursday", "14:30", "Blue"),
    ("staff meeting", "Tuesday", "08:30", "White"),
    ("yearly report", "Friday", "16:00", "Green"),
)
QUESTIONS = (
    "Book room Red on Wednesday at 09:00 for the sales meeting.",
    "Book room Blue on Monday at 15:00 for the safety training.",
)


def require_server(address: str | None = None) -> None:
    """Ends the program with one line where nobody listens at the address, by default that of
    OPENAI_BASE_URL."""
    address = os.environ.get("OPENAI_BASE_URL", "") if address is None else address
    if not address:
        sys.exit("OPENAI_BASE_URL is not set; start `whiflash serve`, then export what is above")
    place = urlsplit(address if "//" in address else f"//{address}")
    port = place.port or {"https": 443}.get(place.scheme, 80)
    try:
        socket.create_connection((place.hostname or "", port), timeout=5).close()
    except OSError as error:
        sys.exit(f"no server at {address} ({error}); start `whiflash serve`, wait for `ready`")


def book_room(title: str, day: str, time: str, room: str) -> str:
    """Books a room for a meeting."""
    slot = (day, time, room)
    if slot in BOOKED:
        return f"error: room {room} is taken by the {BOOKED[slot]}"
    BOOKED[slot] = title
    return f"booked: {title}, {day} {time}, room {room}"


TOOL = {
    "type": "function",
    "function": {
        "name": "book_room",
        "description": book_room.__doc__,
        "parameters": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("title", "day", "time", "room")},
            "required": ["title", "day", "time", "room"],
        },
    },
}


def example_turns() -> list[tuple[str, dict[str, str], str, str]]:
    """Question, arguments, result and answer of each example."""
    turns = []
    for title, day, time, room in EXAMPLES:
        question = f"Book room {room} on {day} at {time} for the {title}."
        arguments = {"title": title, "day": day, "time": time, "room": room}
        result = book_room(**arguments)
        answer = f"The {title} is booked in room {room} on {day} at {time}."
        if result.startswith("error"):
            answer = f"Room {room} is taken by the {BOOKED[day, time, room]}."
        turns.append((question, arguments, result, answer))
    return turns


def example_messages() -> list[dict]:
    """The conversation so far, in OpenAI's words."""
    messages: list[dict] = [{"role": "system", "content": SYSTEM}]
    for number, (question, arguments, result, answer) in enumerate(example_turns()):
        function = {"name": "book_room", "arguments": json.dumps(arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
            {"role": "assistant", "content": answer},
        ]
    return messages
