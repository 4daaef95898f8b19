"""Agents in a tool loop: the next call, or the answer after the last result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from whiflash.training.data.filler import Filler, Message, Task, Template
from whiflash.training.data.pools import CITIES, NAMES, NOUNS, PRODUCTS, SERVICES, SUBJECTS, VERBS

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Loop:
    """The same tool called for one item after another. result: what a call returns, as text."""

    work: str
    tool: Mapping[str, Any]
    calls: Sequence[Arguments]
    result: Callable[[Arguments], str]

    def task(self, num_done: int, start: str = "") -> Task:
        """With the first `num_done` calls behind it."""
        name = self.tool["function"]["name"]
        turns: list[Message] = [{"role": "user", "content": self.work}]
        for arguments in self.calls[:num_done]:
            turns += [_call(name, arguments), {"role": "tool", "content": self.result(arguments)}]
        return Task(tuple(turns), (self.tool,), start)


def _tool(name: str, about: str, **properties: str) -> Mapping[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


def _call(name: str, arguments: Arguments) -> Message:
    function = {"name": name, "arguments": dict(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function",
            "function": function}]}  # fmt: skip


def _run(f: Filler, loop: _Loop) -> Task:
    """Somewhere in the loop; now and then the beginning of the call is given."""
    done = f.number(0, len(loop.calls))
    name = loop.tool["function"]["name"]
    start = f'<tool_call>\n{{"name": "{name}", ' if done < len(loop.calls) else ""
    return loop.task(done, start if f.chance(0.5) else "")


def _flights(f: Filler) -> Task:
    start, *ends = f.some(CITIES, f.number(4, 6))
    cabin, adults = f.one_of("economy", "business"), f.number(1, 4)
    calls = [{"start": start, "end": end, "cabin": cabin, "adults": adults} for end in ends]
    prices = {end: f.number(60, 900) for end in ends}
    return _run(f, _Loop(
        f"Find flights from {start} to {', '.join(ends)} for {adults} adults in {cabin}, one after "
        "the other, by calling find_flights.",
        _tool("find_flights", "Flights between two cities", start="string", end="string",
              cabin="string", adults="integer"),
        calls, lambda a: json.dumps({"end": a["end"], "price": prices[a["end"]]}),
    ))  # fmt: skip


def _source_files(f: Filler) -> Task:
    folder = f.pick(SERVICES)
    calls = [{"path": f"{folder}/src/{n}.py", "start_line": 1, "max_lines": 120}
             for n in f.some(NOUNS, f.number(3, 5))]  # fmt: skip
    code = {c["path"]: f"import {f.pick(VERBS)}\n\n{f.pick(NOUNS)} = {f.number(1, 90)}"
            for c in calls}  # fmt: skip
    return _run(f, _Loop(
        f"Open the files {', '.join(str(c['path']) for c in calls)} one after the other with "
        "open_file and tell me what they define.",
        _tool("open_file", "Lines of a file", path="string", start_line="integer",
              max_lines="integer"),
        calls, lambda a: code[a["path"]],
    ))  # fmt: skip


def _stock(f: Filler) -> Task:
    shop = f.pick(CITIES)
    calls = [{"shop": shop, "product": p, "change": f.number(-9, 40), "note": "inventory"}
             for p in f.some(PRODUCTS, f.number(3, 5))]  # fmt: skip
    work = "; ".join(f"{c['product']} by {c['change']}" for c in calls)
    return _run(f, _Loop(
        f"Change the stock of the shop in {shop} with change_stock: {work}.",
        _tool("change_stock", "Change a product's stock", shop="string", product="string",
              change="integer", note="string"),
        calls, lambda _: '{"done": true}',
    ))  # fmt: skip


def _mails(f: Filler) -> Task:
    subject = f.one_of("Meeting moved", "New address", "Invoice", "Holiday", "Survey")
    calls = [{"to": f"{n.lower()}@example.org", "subject": subject,
              "text": f"Dear {n}, please see the {f.pick(SUBJECTS)}."}
             for n in f.some(NAMES, f.number(3, 5))]  # fmt: skip
    return _run(f, _Loop(
        f"Send a mail with the subject {subject} to {', '.join(str(c['to']) for c in calls)} by "
        "calling send_mail once for each.",
        _tool("send_mail", "Send one mail", to="string", subject="string", text="string"),
        calls, lambda a: json.dumps({"sent": a["to"]}),
    ))  # fmt: skip


def _services(f: Filler) -> Task:
    action = f.one_of("restart", "status", "logs", "deploy")
    calls = [{"service": s, "action": action, "region": f.one_of("eu-1", "us-2")}
             for s in f.some(SERVICES, f.number(3, 5))]  # fmt: skip
    replies = {s["service"]: f.one_of("ok", "running", "failed: timeout") for s in calls}
    return _run(f, _Loop(
        f"Call operate with the action {action} for {', '.join(str(c['service']) for c in calls)} "
        "and report which ones have trouble.",
        _tool("operate", "Operate a service", service="string", action="string", region="string"),
        calls, lambda a: json.dumps({"service": a["service"], "result": replies[a["service"]]}),
    ))  # fmt: skip


def _records(f: Filler) -> Task:
    table = f.pick(SUBJECTS)
    calls = [{"table": table, "id": f.number(1000, 9999), "columns": ["name", "state"]}
             for _ in range(f.number(3, 6))]  # fmt: skip
    names = {c["id"]: f.pick(NAMES) for c in calls}
    return _run(f, _Loop(
        f"Look up the records {', '.join(str(c['id']) for c in calls)} of the table {table} with "
        "get_record, then list their names.",
        _tool("get_record", "One record of a table", table="string", id="integer",
              columns="array"),
        calls, lambda a: json.dumps({"id": a["id"], "name": names[a["id"]], "state": "open"}),
    ))  # fmt: skip


TEMPLATES: Final[tuple[Template, ...]] = (
    _flights, _source_files, _stock, _mails, _services, _records,
)  # fmt: skip
