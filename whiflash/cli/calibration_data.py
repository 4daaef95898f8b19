"""Prompts of a calibration, by category."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whiflash.core.errors import ConfigError

MIN_PROMPTS, MAX_PROMPTS = 32, 64
_FIT = "fit"


@dataclass(frozen=True, slots=True)
class CategoryPrompts:
    """Prompts of one kind of text."""

    name: str
    prompts: tuple[str, ...]


def read_categories(files: Sequence[Path], max_prompts: int) -> list[CategoryPrompts]:
    """The first `max_prompts` of each category, in order of appearance. A record is a JSON line
    with `prompt` and `category` (default: the file's name); where it has a `part`, only part `fit`
    is taken. Raises ConfigError."""
    found: dict[str, list[str]] = {}
    for file in files:
        for record in _records(file):
            if record.get("part", _FIT) == _FIT:
                kept = found.setdefault(str(record.get("category", file.stem)), [])
                if len(kept) < max_prompts:
                    kept.append(record["prompt"])
    if not found:
        raise ConfigError("--data holds no prompt (records with a `part` count only as part `fit`)")
    return [CategoryPrompts(name, tuple(prompts)) for name, prompts in found.items()]


def _records(file: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"cannot read the prompts {file}; --data takes JSON lines") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _record(file, number, line)


def _record(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise ConfigError(f"{file}, line {number}: expected an object with a text `prompt`")
    return record
