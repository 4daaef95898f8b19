"""JSON, YAML, CSV and tables."""

from __future__ import annotations

import json
from typing import Final

from whiflash.training.data.filler import Filler, Task, Template
from whiflash.training.data.pools import (
    CITIES,
    FIELDS,
    NAMES,
    PRODUCTS,
    SERVICES,
    SUBJECTS,
)

_LEVELS = ("low", "medium", "high")


def person(f: Filler, name: str) -> dict[str, object]:
    """A record about a person."""
    return {"name": name, "age": f.number(18, 80), "city": f.pick(CITIES),
            "active": f.chance(0.5)}  # fmt: skip


def article(f: Filler, name: str) -> dict[str, object]:
    """A record about a product."""
    return {"id": f.number(100, 999), "name": name, "price": f.number(100, 9900) / 100,
            "stock": f.number(0, 80), "level": f.one_of(*_LEVELS)}  # fmt: skip


def _lines(f: Filler) -> Task:
    subject, fields = f.pick(SUBJECTS), f.some(FIELDS, f.number(3, 5))
    keys = ", ".join(fields)
    start = "{" + f'"{fields[0]}": ' if f.chance(0.5) else ""
    return Task.ask(
        f"Write {f.number(5, 10)} JSON lines about a {subject}, each with the keys {keys}. "
        "Write nothing else.",
        start=start,
    )


def _object(f: Filler) -> Task:
    subject, fields = f.pick(SUBJECTS), f.some(FIELDS, f.number(4, 7))
    return Task.ask(
        f"Make up a {subject} and describe it as one JSON object with the keys "
        f"{', '.join(fields)}.",
        start="```json\n{\n" if f.chance(0.6) else "",
    )


def _extract(f: Filler) -> Task:
    people = [person(f, name) for name in f.some(NAMES, f.number(2, 4))]
    told = " ".join(
        f"{p['name']} is {p['age']} years old, lives in {p['city']} and is "
        f"{'active' if p['active'] else 'not active'}." for p in people
    )  # fmt: skip
    return Task.ask(
        f"Extract all people as a JSON list with name, age, city and active.\n\n{told}",
        start='```json\n[\n  {"name": ' if f.chance(0.5) else "",
    )


def _table(f: Filler) -> Task:
    items = [article(f, name) for name in f.some(PRODUCTS, f.number(3, 5))]
    lines = "\n".join(json.dumps(item) for item in items)
    ask = f.one_of("Write these records as a Markdown table.", "Turn these records into CSV with a "
                   "header.", "Write these records as one JSON list.",
                   "Write these records as YAML.")  # fmt: skip
    return Task.ask(f"{ask}\n\n{lines}")


def _csv(f: Filler) -> Task:
    fields = f.some(FIELDS, 4)
    return Task.ask(f"Write a CSV file with {f.number(6, 12)} lines about a {f.pick(SUBJECTS)}.",
                    start=",".join(fields) + "\n")  # fmt: skip


def _schema(f: Filler) -> Task:
    return Task.ask(
        f"Write a JSON schema for a {f.pick(SUBJECTS)} with {', '.join(f.some(FIELDS, 4))}.",
        start='```json\n{\n  "type": "object",\n  "properties": {\n',
    )


def _settings(f: Filler) -> Task:
    service = f.pick(SERVICES)
    kind = f.one_of("YAML", "TOML", "JSON", "docker-compose", "Kubernetes deployment")
    return Task.ask(
        f"Write a {kind} file for the service {service} with {f.number(2, 6)} replicas, port "
        f"{f.number(3000, 9999)} and three environment variables."
    )


def _html(f: Filler) -> Task:
    names = ", ".join(f.some(PRODUCTS, f.number(3, 6)))
    return Task.ask(f"Write an HTML list of these products with prices: {names}.",
                    start="```html\n<ul>\n  <li>")  # fmt: skip


def _classify(f: Filler) -> Task:
    comments = [
        f"The {product} from {f.pick(CITIES)} {f.one_of('broke', 'works well', 'arrived late')}."
        for product in f.some(PRODUCTS, f.number(3, 6))
    ]
    numbered = "\n".join(f"{i}. {text}" for i, text in enumerate(comments, 1))
    return Task.ask(
        "Answer with a JSON line per comment: number, product, sentiment (positive, negative or "
        f"neutral).\n\n{numbered}",
        start='{"number": 1, "product": ',
    )


TEMPLATES: Final[tuple[Template, ...]] = (
    _lines, _lines, _object, _object, _extract, _table, _csv, _schema, _settings, _html, _classify,
)  # fmt: skip
