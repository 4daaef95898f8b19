"""Prompts of the suite `core`, written for this project: five kinds of text that agents make.

SmolLM2-135M does these correctly or at least fluently. How much of an answer repeats itself is
measured and reported beside every speed, since repetition is what retrieval lives on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One prompt as chat messages. `start` is the beginning of the answer, given to the model
    (a small one then does the work instead of talking about it); `max_tokens` bounds the rest."""

    kind: str
    name: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    max_tokens: int = 128
    start: str = ""


_INVENTORY = """{"shop": "north", "items": [
{"sku": "LMP-204", "name": "desk lamp", "price": 39.5, "stock": 14},
{"sku": "CHR-118", "name": "swivel chair", "price": 129.0, "stock": 3},
{"sku": "MAT-077", "name": "yoga mat", "price": 24.9, "stock": 52}]}"""
_SERVICE = """service: parcel-tracker
replicas: 3
image: parcel-tracker:1.4.2
environment:
  LOG_LEVEL: info
  QUEUE_NAME: parcels
  RETRY_LIMIT: 5
ports: [8080, 9090]
health:
  path: /healthz
  interval_seconds: 15"""
_MEETING = """Minutes of the river group, 14 May.
Present: Ines, Tomasz, Oluwaseun, Mirja. The group agreed to move the water gauge below the old
mill, because the present place floods each spring. Tomasz will ask the town for a key to the gate.
Mirja presented the oxygen readings of March and April; both lie within the usual range. The next
walk along the river is on 28 May, starting at nine at the stone bridge."""
_PYTHON = """def total_price(items, discount):
    total = 0
    for item in items:
        total = total + item["price"] * item["count"]
    return round(total - total * discount, 2)


def print_receipt(items, discount):
    for item in items:
        print(item["name"], item["price"])
    print("total:", total_price(items, discount))"""
_CLASS = """class Queue:
    def __init__(self, limit):
        self.limit = limit
        self.items = []

    def push(self, item):
        if len(self.items) >= self.limit:
            raise ValueError("queue is full")
        self.items.append(item)

    def pop(self):
        if not self.items:
            return None
        return self.items.pop(0)"""
_JAVASCRIPT = """function formatUser(user) {
  const name = user.first + " " + user.last;
  const city = user.address.city;
  if (!user.active) {
    return name + " (inactive)";
  }
  return name + ", " + city;
}"""

# Text, the work as said to the model, the beginning of the answer, and its most tokens.
_COPY = {
    "inventory": (
        "Repeat this JSON with the shop changed to south.",
        _INVENTORY,
        '{"shop": "south", "items": [\n{"sku": "LMP-204",',
        130,
    ),
    "service": ("Repeat this file.", _SERVICE, "service: parcel-tracker\nreplicas:", 90),
    "minutes": ("Repeat this text.", _MEETING, "Minutes of the river group", 128),
}
_EDIT = {
    "python": (
        "Rename total_price to sum_of_items in this code and repeat the whole code.",
        _PYTHON,
        "def sum_of_items(items, discount):\n    total = 0\n"
        "    for item in items:\n        total =",
        110,
    ),
    "class": (
        "Rename push to put in this code and repeat the whole code.",
        _CLASS,
        "class Queue:\n    def __init__(self, limit):\n"
        "        self.limit = limit\n        self.items =",
        110,
    ),
    "javascript": (
        "Rename formatUser to showUser in this code and repeat the whole code.",
        _JAVASCRIPT,
        'function showUser(user) {\n  const name = user.first + " " +',
        90,
    ),
}
_LINES = {
    "events": (
        "Write a log of twelve events, one JSON object a line.",
        """{"time": "08:00:00", "level": "info", "service": "billing", "message": "started"}
{"time": "08:00:04", "level": "warning", "service": "mail", "message": "queue is long"}
{"time": "08:00:09", "level": "info", "service": "search", "message": "index loaded"}
{"time": "08:00:15", "level":""",
    ),
    "people": (
        "Write a list of twelve people, one JSON object a line.",
        """{"id": 1, "name": "Ada", "age": 36, "city": "Leeds"}
{"id": 2, "name": "Joao", "age": 29, "city": "Porto"}
{"id": 3, "name": "Mirja", "age": 41, "city": "Turku"}
{"id": 4, "name":""",
    ),
    "sensors": (
        "Write twelve sensor readings, one JSON object a line.",
        """{"sensor": "t1", "unit": "C", "value": 21.5, "ok": true}
{"sensor": "t2", "unit": "C", "value": 19.0, "ok": true}
{"sensor": "p1", "unit": "bar", "value": 1.02, "ok": false}
{"sensor": "p2", "unit":""",
    ),
}
_CHAT = {
    "tea": "How do I make a good cup of green tea? Explain it in a few sentences.",
    "moon": "Why does the moon seem to change its shape during a month?",
    "letter": "Write a short friendly letter to a neighbour who looked after my cat.",
}


def _tool(name: str, about: str, **properties: str) -> dict[str, Any]:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    schema = {"type": "object", "properties": fields, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


def _call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }


def _result(text: str) -> Message:
    return {"role": "tool", "content": text}


@dataclass(frozen=True, slots=True)
class _Loop:
    """A tool loop in progress: the same call for one item after another."""

    task: str
    tool: dict[str, Any]
    steps: tuple[tuple[dict[str, Any], str], ...] = field(default=())

    def messages(self) -> tuple[Message, ...]:
        name = self.tool["function"]["name"]
        turns: list[Message] = [{"role": "user", "content": self.task}]
        for arguments, result in self.steps:
            turns += [_call(name, **arguments), _result(result)]
        return tuple(turns)


_LOOPS: Final = {
    "weather": _Loop(
        "Look up the weather for Lisbon, Porto, Faro, Braga and Evora, one after the other, in "
        "celsius with a forecast of three days, by calling get_weather.",
        _tool("get_weather", "Weather of a city", city="string", unit="string", days="integer"),
        (
            ({"city": "Lisbon", "unit": "celsius", "days": 3}, '{"city": "Lisbon", "degrees": 19}'),
            ({"city": "Porto", "unit": "celsius", "days": 3}, '{"city": "Porto", "degrees": 16}'),
            ({"city": "Faro", "unit": "celsius", "days": 3}, '{"city": "Faro", "degrees": 22}'),
        ),
    ),
    "files": _Loop(
        "Read the files src/app/main.py, src/app/routes.py, src/app/models.py and "
        "src/app/views.py, one after the other, by calling read_file.",
        _tool("read_file", "Read lines", path="string", max_lines="integer", encoding="string"),
        (
            ({"path": "src/app/main.py", "max_lines": 200, "encoding": "utf-8"}, "import routes"),
            ({"path": "src/app/routes.py", "max_lines": 200, "encoding": "utf-8"}, "import models"),
            ({"path": "src/app/models.py", "max_lines": 200, "encoding": "utf-8"}, "import views"),
        ),
    ),
    "orders": _Loop(
        "Set the status of the orders A-1001, A-1002, A-1003 and A-1004 to shipped with carrier "
        "NorthPost, notifying the customer, by calling update_order.",
        _tool("update_order", "Change an order", order_id="string", status="string",
              carrier="string", notify="boolean"),
        tuple(
            ({"order_id": f"A-{n}", "status": "shipped", "carrier": "NorthPost", "notify": True},
             '{"ok": true}')
            for n in (1001, 1002, 1003)
        ),
    ),
}  # fmt: skip


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def all_prompts() -> Iterator[BenchPrompt]:
    """All prompts, kinds in the order of the tables."""
    for kind, texts in (("copy", _COPY), ("edit", _EDIT)):
        for name, (work, text, start, max_tokens) in texts.items():
            message = _user(f"{work}\n\n{text}")
            yield BenchPrompt(kind, name, (message,), max_tokens=max_tokens, start=start)
    for name, loop in _LOOPS.items():
        yield BenchPrompt("tool loop", name, loop.messages(), (loop.tool,), 96)
    for name, (work, start) in _LINES.items():
        yield BenchPrompt("JSON lines", name, (_user(work),), start=start)
    for name, text in _CHAT.items():
        yield BenchPrompt("chat", name, (_user(text),))


KINDS: Final[tuple[str, ...]] = ("copy", "edit", "tool loop", "JSON lines", "chat")
