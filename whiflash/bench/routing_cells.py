"""Measured cells of the suite `routing`: each is kept as soon as it is whole, so that a run that
was ended goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whiflash.bench.suite import write_json

Rows = list[dict[str, Any]]


class Cells:
    """Rows by cell in `folder`, which is made. facts: what the figures depend on; cells of other
    facts are measured anew."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self._folder = folder
        self._facts = _digest(json.dumps(facts, sort_keys=True, default=str))
        folder.mkdir(parents=True, exist_ok=True)

    def rows(self, name: str, measure: Callable[[], Rows]) -> Rows:
        """Those that are kept, or what `measure` returns."""
        path = self._folder / f"{_digest(name)}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["facts"] == self._facts and kept["cell"] == name:
                return list(kept["rows"])
        rows = measure()
        write_json(path, {"cell": name, "facts": self._facts, "rows": rows})
        return rows

    def logged(self, name: str, measure: Callable[[Path], Rows]) -> tuple[Path, Rows]:
        """A cell that leaves a round log too: its file, and what goes with it. A log whose cell was
        not finished is written anew."""
        log = self._folder / _digest(name) / "rounds.zst"

        def measured() -> Rows:
            for left in log.parent.glob("*"):
                left.unlink()
            return measure(log)

        return log, self.rows(name, measured)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
