"""Carries files of recorded runs into a store, and shows how far it is and what there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from whiflash.cli.store.desks import Desk
from whiflash.cli.store.files import FoundRecord, read_files, total_bytes
from whiflash.cli.store.layouts import read_record
from whiflash.core.errors import InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation
from whiflash.serving.trajectories.desk import Run
from whiflash.trajectories.keeper import Added, NamespaceStats

BATCH_RUNS = 32
BATCH_BYTES = 4 * 2**20  # a quarter of what a server takes in one message
Tell = Callable[[int], None]


class Importer:
    """added: sums of all batches; problems: a line per record that was left out, with its place.

    agent, subject: for runs that say nothing of them.
    """

    def __init__(self, desk: Desk, agent: str = "", subject: str = "") -> None:
        self._desk = desk
        self._agent = agent
        self._subject = subject
        self.added = Added()
        self.problems: list[str] = []

    def run(self, files: list[Path], tell: Tell) -> None:
        """Raises ConfigError on files that cannot be read, StoreError."""
        batch: list[tuple[str, Run]] = []
        num_bytes = 0
        for found in read_files(files, tell):
            run = self._run_of(found)
            if run is None:
                continue
            batch.append((found.place, run))
            num_bytes += found.num_bytes
            if len(batch) == BATCH_RUNS or num_bytes > BATCH_BYTES:
                self._add(batch)
                batch, num_bytes = [], 0
        self._add(batch)

    def _run_of(self, found: FoundRecord) -> Run | None:
        if found.problem:
            self.problems.append(f"{found.place}: {found.problem}")
            return None
        try:
            run = read_record(found.value)
        except InvalidRequestError as error:
            self.problems.append(f"{found.place}: {error}")
            return None
        if not isinstance(run, Conversation):
            return run
        return replace(
            run, agent=run.agent or self._agent, subject=run.subject or self._subject
        )  # fmt: skip

    def _add(self, batch: list[tuple[str, Run]]) -> None:
        if not batch:
            return
        added, bad = self._desk.add([run for _, run in batch])
        self.problems += [f"{batch[one.index][0]}: {one.reason}" for one in bad]
        self.added.include(added)


@contextmanager
def progress_bar(files: list[Path], is_quiet: bool) -> Iterator[Tell]:
    """Over the bytes of the files, on standard error; hidden where nobody looks. Raises
    ConfigError on files that are not there."""
    total = total_bytes(files)
    console = Console(stderr=True)
    columns = (TextColumn("import"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    is_hidden = is_quiet or not console.is_terminal
    with Progress(*columns, console=console, disable=is_hidden) as progress:
        task = progress.add_task("import", total=total)
        yield lambda count: progress.advance(task, count)


def refused(added: Added) -> str:
    """What an import left out for the store's sake, to stand behind what it did; "" for none."""
    said = ""
    if added.deleted:
        said += f"; {added.deleted} were deleted here before and are refused"
    if added.expired:
        said += f"; {added.expired} are older than the store keeps and are refused"
    return said


def stats_table(found: Sequence[NamespaceStats]) -> None:
    """Printed to standard output."""
    table = Table()
    table.add_column("namespace", overflow="fold")
    for title in ("runs", "turns", "tokens", "bytes", "oldest", "newest"):
        table.add_column(title, justify="right")
    for one in found:
        numbers = (one.num_runs, one.num_records, one.num_tokens, one.num_bytes)
        ages = (_day(one.oldest_ms), _day(one.newest_ms))
        table.add_row(one.namespace, *(f"{number:,}" for number in numbers), *ages)
    Console().print(table)


def _day(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_ms / 1000)) if time_ms else "-"
