"""Measured cells of the suite `routing`: each is kept as soon as it is whole, so that a long run
that was ended goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whiflash.bench.suite import write_json

Rows = list[dict[str, Any]]


class Cells:
    """Rows by cell in `folder`; None keeps nothing. facts: what the figures depend on; cells of
    other facts are measured anew."""

    def __init__(self, folder: Path | None, facts: Mapping[str, Any]) -> None:
        self._folder = folder
        text = json.dumps(facts, sort_keys=True, default=str)
        self._facts = hashlib.sha256(text.encode()).hexdigest()[:16]

    def rows(self, name: str, measure: Callable[[], Rows]) -> Rows:
        """Those that are kept, or what `measure` returns."""
        if self._folder is None:
            return measure()
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["facts"] == self._facts and kept["cell"] == name:
                return list(kept["rows"])
        rows = measure()
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"cell": name, "facts": self._facts, "rows": rows})
        return rows
