"""A bar on standard error while a stage runs."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class StageBar:
    """What is done of a stage, with a note behind it. A context manager."""

    def __init__(self, name: str, total: int, done: int = 0, *, is_shown: bool = True) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
        console = Console(file=sys.stderr)
        self._bars = Progress(*columns, console=console, disable=not is_shown)
        self._task = self._bars.add_task(name, total=total, completed=done, note="")

    def step(self, note: str = "", count: int = 1) -> None:
        """One more is done."""
        self._bars.update(self._task, advance=count, note=note)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
