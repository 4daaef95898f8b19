"""Programs to write, explain, test and document."""

from __future__ import annotations

from typing import Final

from whiflash.training.data.filler import Filler, Task, Template
from whiflash.training.data.phrases import PURPOSES
from whiflash.training.data.pools import FIELDS, NOUNS, SERVICES, SUBJECTS, VERBS


def _name(f: Filler) -> str:
    return f"{f.pick(VERBS)}_{f.pick(NOUNS)}"


def _function(f: Filler) -> Task:
    language = f.one_of("Python", "Python", "Python", "JavaScript", "Java", "C", "Go", "Rust")
    extra = f.one_of("", " Add a docstring.", " Show an example call.", " Explain it briefly.")
    return Task.ask(f"Write a {language} function that {f.pick(PURPOSES)}.{extra}")


def _completion(f: Filler) -> Task:
    name = _name(f)
    purpose = f.pick(PURPOSES)
    start = f"```python\ndef {name}("
    return Task.ask(f"Write a Python function {name} that {purpose}.", start=start)


def _class(f: Filler) -> Task:
    subject = f.pick(SUBJECTS).capitalize()
    fields = f.some(FIELDS, 3)
    method = _name(f)
    return Task.ask(
        f"Write a Python class {subject} with the attributes {', '.join(fields)} and a method "
        f"{method}.",
        start=f"```python\nclass {subject}:\n    def __init__(self, {', '.join(fields)}):\n",
    )


def _tests(f: Filler) -> Task:
    name, noun = _name(f), f.pick(NOUNS)
    code = f"def {name}({noun}):\n    return sorted(set({noun}))[:{f.number(2, 9)}]"
    return Task.ask(f"Write unit tests with pytest for this function.\n\n{code}")


def _explain(f: Filler) -> Task:
    name, item, noun = _name(f), f.pick(SUBJECTS), f.pick(NOUNS)
    field = f.pick(FIELDS)
    code = (
        f"def {name}({noun}):\n    result = {{}}\n    for {item} in {noun}:\n"
        f'        key = {item}["{field}"]\n        result.setdefault(key, []).append({item})\n'
        "    return result"
    )
    ask = f.one_of("What does this code do?", "Add comments to this code.", "Explain this code "
                   "line by line.", "Write a docstring for this function.")  # fmt: skip
    return Task.ask(f"{ask}\n\n{code}")


def _bug(f: Filler) -> Task:
    name, noun = _name(f), f.pick(NOUNS)
    flaw = f.number(1, 5)
    if f.chance(0.5):
        body = (
            f"    total = 0\n    for i in range(len({noun}) + {flaw}):\n        total += {noun}[i]"
        )
    else:
        body = f"    total = {flaw}\n    for value in {noun}:\n        total = value"
    return Task.ask(
        f"This function should add up all {noun}, but it does not. Find the mistake and write the "
        f"corrected function.\n\ndef {name}({noun}):\n{body}\n    return total"
    )


def _sql(f: Filler) -> Task:
    table = f"{f.pick(SUBJECTS)}s"
    first, second, third = f.some(FIELDS, 3)
    ask = f.one_of(
        f"select {first} and {second} of all rows where {third} is above {f.number(1, 100)}",
        f"count the rows for each {first}, most frequent first",
        f"find the ten rows with the highest {third}",
        f"set {first} to 0 where {second} is empty",
    )
    return Task.ask(f"Write an SQL query on the table {table} ({first}, {second}, {third}): {ask}.")


def _shell(f: Filler) -> Task:
    service = f.pick(SERVICES)
    ask = f.one_of(
        "copies its log files to a backup folder and compresses them",
        "restarts it when its port does not answer",
        "prints the ten largest files in its folder",
        "deletes files that are older than a week",
    )
    return Task.ask(f"Write a bash script for the service {service} that {ask}.",
                    start="```bash\n#!/bin/bash\n")  # fmt: skip


def _readme(f: Filler) -> Task:
    service, purpose = f.pick(SERVICES), f.pick(PURPOSES)
    return Task.ask(f"Write a short README for {service}, a command line tool that {purpose}.",
                    start=f"# {service}\n")  # fmt: skip


def _translate(f: Filler) -> Task:
    name, noun = _name(f), f.pick(NOUNS)
    code = (
        f"def {name}({noun}, limit={f.number(2, 50)}):\n    found = []\n    for value in {noun}:\n"
        "        if value > limit:\n            found.append(value)\n    return found"
    )
    return Task.ask(f"Translate this Python code to {f.one_of('JavaScript', 'Java', 'Go', 'C++')}."
                    f"\n\n{code}")  # fmt: skip


def _dataclass(f: Filler) -> Task:
    subject, fields = f.pick(SUBJECTS).capitalize(), f.some(FIELDS, 4)
    return Task.ask(
        f"Write a Python dataclass {subject} with the fields {', '.join(fields)} and a method "
        "to_dict.",
        start=f"```python\nfrom dataclasses import dataclass\n\n\n@dataclass\nclass {subject}:\n",
    )


TEMPLATES: Final[tuple[Template, ...]] = (
    _function, _function, _completion, _completion, _class, _tests, _explain, _bug, _sql, _shell,
    _readme, _translate, _dataclass,
)  # fmt: skip
