"""Texts to repeat with a change: what agents do to files all day."""

from __future__ import annotations

import json
from typing import Final

from whiflash.training.data.filler import Filler, Task, Template
from whiflash.training.data.pools import (
    CITIES,
    FIELDS,
    NAMES,
    NOUNS,
    PRODUCTS,
    SERVICES,
    SUBJECTS,
    VERBS,
)
from whiflash.training.data.templates.structured import article

_AGAIN = "write the whole text again"


def _function(f: Filler, name: str) -> str:
    noun, item, field = f.pick(NOUNS), f.pick(SUBJECTS), f.pick(FIELDS)
    return f.one_of(
        f"def {name}({noun}, limit):\n    kept = []\n    for {item} in {noun}:\n"
        f"        if {item}.{field} > limit:\n            kept.append({item})\n    return kept",
        f"def {name}({noun}):\n    if not {noun}:\n        return None\n"
        f"    best = {noun}[0]\n    for {item} in {noun}[1:]:\n"
        f"        if {item}.{field} > best.{field}:\n            best = {item}\n    return best",
        f"def {name}(path):\n    {noun} = []\n    with open(path) as file:\n"
        f"        for line in file:\n            {noun}.append(line.strip())\n"
        f"    print(\"{field}\", len({noun}))\n    return {noun}",
        f"async def {name}(client, {item}_id):\n    reply = await client.get(\"{field}\", "
        f"{item}_id)\n    if reply.status != 200:\n        raise ValueError(reply.text)\n"
        f"    {noun} = reply.json()[\"{noun}\"]\n    return {noun}",
    )  # fmt: skip


def _rename(f: Filler) -> Task:
    old, new = (f"{verb}_{f.pick(NOUNS)}" for verb in f.some(VERBS, 2))
    code = _function(f, old)
    again = _function_start(code.replace(old, new))
    return Task.ask(f"Rename {old} to {new} in this code and repeat the whole code.\n\n{code}",
                    start=again)  # fmt: skip


def _function_start(code: str) -> str:
    """The first line and a little: a small model then goes on instead of talking about it."""
    return "\n".join(code.split("\n")[:2])


def _repeat_code(f: Filler) -> Task:
    code = "\n\n\n".join(_function(f, f"{verb}_{f.pick(NOUNS)}") for verb in f.some(VERBS, 2))
    ask = f.one_of("Repeat this code.", "Print this file unchanged.", "Write this code again.")
    return Task.ask(f"{ask}\n\n{code}", start=_function_start(code))


def _json_change(f: Filler) -> Task:
    items = [article(f, name) for name in f.some(PRODUCTS, f.number(2, 4))]
    old, new = f.some(CITIES, 2)
    text = json.dumps({"city": old, "items": items}, indent=2 if f.chance(0.5) else None)
    return Task.ask(f"Repeat this JSON with the city changed to {new}.\n\n{text}",
                    start=text.replace(old, new)[: f.number(16, 40)])  # fmt: skip


def _price_change(f: Filler) -> Task:
    items = [article(f, name) for name in f.some(PRODUCTS, f.number(3, 5))]
    chosen = items[f.number(0, len(items) - 1)]
    lines = "\n".join(json.dumps(item) for item in items)
    return Task.ask(
        f"Set the price of the {chosen['name']} to {f.number(10, 99)} and {_AGAIN}.\n\n{lines}",
        start=json.dumps(items[0])[:12],
    )


def _yaml(f: Filler) -> Task:
    service, keys = f.pick(SERVICES), f.some(FIELDS, 3)
    values = [f"  {key.upper()}: {f.number(1, 500)}" for key in keys]
    text = "\n".join(
        [
            f"name: {service}",
            f"image: {service}:{f.number(0, 9)}.{f.number(0, 20)}.{f.number(0, 9)}",
            f"replicas: {f.number(1, 9)}",
            "environment:",
            *values,
            f"port: {f.number(3000, 9999)}",
            "restart: always",
        ]
    )
    ask = f.one_of("Repeat this file.", f"Change replicas to {f.number(10, 30)} and {_AGAIN}.",
                   f"Add the port {f.number(3000, 9999)} and {_AGAIN}.")  # fmt: skip
    return Task.ask(f"{ask}\n\n{text}", start=f"name: {service}\nimage:")


def _names(f: Filler) -> Task:
    first, second, new = f.some(NAMES, 3)
    city, product = f.pick(CITIES), f.pick(PRODUCTS)
    text = (
        f"{first} and {second} met in {city} to talk about the {product}. {first} had brought the "
        f"papers, and {second} had brought the money. After an hour {first} signed. {second} "
        f"thanked {first} and took the {product} home. They agreed to meet in {city} again in "
        f"{f.number(2, 9)} weeks."
    )
    ask = f.one_of(f"Replace {first} by {new} and {_AGAIN}.", "Repeat this text.", "Correct the "
                   f"spelling where needed and {_AGAIN}.")  # fmt: skip
    opening = new if ask.startswith("Replace") else first
    return Task.ask(f"{ask}\n\n{text}", start=f"{opening} and {second} met")


def _translate_keys(f: Filler) -> Task:
    old, new = f.some(FIELDS, 2)
    others = f.some(FIELDS, 2)
    lines = "\n".join(
        json.dumps({old: f.number(1, 99), others[0]: f.pick(NAMES), others[1]: f.pick(CITIES)})
        for _ in range(f.number(4, 7))
    )
    return Task.ask(f"Rename the key {old} to {new} in all lines and repeat them.\n\n{lines}",
                    start=f'{{"{new}": ')  # fmt: skip


def _sorted(f: Filler) -> Task:
    names = f.some(PRODUCTS, f.number(6, 10))
    order = f.one_of("alphabetically", "by length", "in reverse order")
    return Task.ask(f"Write this list again, sorted {order}.\n\n" + "\n".join(f"- {n}" for n in
                    names), start="- ")  # fmt: skip


TEMPLATES: Final[tuple[Template, ...]] = (
    _rename, _rename, _repeat_code, _json_change, _price_change, _yaml, _names, _translate_keys,
    _sorted,
)  # fmt: skip
