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
    """One prompt as chat messages. `max_tokens` bounds the answer."""

    kind: str
    name: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    max_tokens: int = 128


_INVENTORY = """[
  {"sku": "LMP-204", "name": "desk lamp", "price": 39.5, "stock": 14, "tags": ["office", "light"]},
  {"sku": "CHR-118", "name": "swivel chair", "price": 129.0, "stock": 3, "tags": ["office"]},
  {"sku": "MAT-077", "name": "yoga mat", "price": 24.9, "stock": 52, "tags": ["sport", "home"]}
]"""
_SERVICE = """service: parcel-tracker
replicas: 3
image: registry.example/parcel-tracker:1.4.2
environment:
  LOG_LEVEL: info
  QUEUE_NAME: parcels
  RETRY_LIMIT: "5"
ports:
  - 8080
  - 9090
health:
  path: /healthz
  interval_seconds: 15"""
_MEETING = """Minutes of the river group, 14 May.
Present: Ines, Tomasz, Oluwaseun, Mirja. The group agreed to move the water gauge below the old
mill, because the present place floods each spring. Tomasz will ask the town for a key to the gate.
Mirja presented the oxygen readings of March and April; both lie within the usual range. The next
walk along the river is on 28 May, starting at nine at the stone bridge."""
_PYTHON = '''def total_price(items, discount):
    """Sum of the items after the discount."""
    total = 0
    for item in items:
        price = item["price"] * item["count"]
        total = total + price
    if discount > 0:
        total = total - total * discount
    return round(total, 2)


def print_receipt(items, discount):
    for item in items:
        print(item["name"], item["price"])
    print("total:", total_price(items, discount))'''
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
        return self.items.pop(0)

    def size(self):
        return len(self.items)"""
_JAVASCRIPT = """function formatUser(user) {
  const name = user.first + " " + user.last;
  const city = user.address.city;
  if (!user.active) {
    return name + " (inactive)";
  }
  return name + ", " + city;
}

function listUsers(users) {
  return users.map((user) => formatUser(user)).join("\\n");
}"""

_COPY = {
    "inventory": ("Copy this JSON exactly, but change the price of the desk lamp to 45.0. "
                  "Answer with the JSON only.\n\n" + _INVENTORY, 160),
    "service": ("Repeat this file exactly, with replicas set to 5. Answer with the file only."
                "\n\n" + _SERVICE, 110),
    "minutes": ("Repeat the following text word for word.\n\n" + _MEETING, 128),
}  # fmt: skip
_EDIT = {
    "rename": ("Rename the function total_price to sum_of_items everywhere in this code. "
               "Answer with the whole code.\n\n```python\n" + _PYTHON + "\n```", 180),
    "queue": ("Rename the method push to put in this class and leave everything else as it is. "
              "Answer with the whole class.\n\n```python\n" + _CLASS + "\n```", 160),
    "javascript": ("In this code, rename the variable city to town. Answer with the whole code."
                   "\n\n```javascript\n" + _JAVASCRIPT + "\n```", 140),
}  # fmt: skip
_LINES = {
    "events": 'Write twelve JSON lines of log events. Each line has the keys "time", "level", '
    '"service" and "message", like this:\n'
    '{"time": "2031-04-02T08:00:00", "level": "info", "service": "billing", "message": "started"}',
    "people": "Write ten JSON lines that describe people, one object a line, with the keys "
    '"id", "name", "age", "city". Start with {"id": 1, "name": "Ada", "age": 36, "city": "Leeds"}',
    "sensors": 'Write twelve JSON lines of sensor readings with the keys "sensor", "unit", '
    '"value" and "ok", for example {"sensor": "t1", "unit": "C", "value": 21.5, "ok": true}',
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
        "Read src/app/main.py, src/app/routes.py, src/app/models.py and src/app/views.py with "
        "read_file, 200 lines each, as utf-8.",
        _tool("read_file", "Read lines", path="string", max_lines="integer", encoding="string"),
        (
            ({"path": "src/app/main.py", "max_lines": 200, "encoding": "utf-8"}, "import routes"),
            ({"path": "src/app/routes.py", "max_lines": 200, "encoding": "utf-8"}, "import models"),
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


def _from_user(kind: str, name: str, text: str, max_tokens: int = 128) -> BenchPrompt:
    return BenchPrompt(kind, name, ({"role": "user", "content": text},), max_tokens=max_tokens)


def all_prompts() -> Iterator[BenchPrompt]:
    """All prompts, kinds in the order of the tables."""
    for kind, texts in (("copy", _COPY), ("edit", _EDIT)):
        for name, (text, max_tokens) in texts.items():
            yield _from_user(kind, name, text, max_tokens)
    for name, loop in _LOOPS.items():
        yield BenchPrompt("tool loop", name, loop.messages(), (loop.tool,), 96)
    for name, text in _LINES.items():
        yield _from_user("JSON lines", name, text)
    for name, text in _CHAT.items():
        yield _from_user("chat", name, text)


KINDS: Final[tuple[str, ...]] = ("copy", "edit", "tool loop", "JSON lines", "chat")
