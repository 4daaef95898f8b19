"""A folder of recorded runs as their makers write them, for `whiflash replay text`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from whiflash.bench.recordings import (
    SETS,
    RecordedData,
    RecordedRun,
    RecordedSet,
    Recordings,
    RunWriter,
)
from whiflash.cli.store.files import FoundRecord, is_read, read_files
from whiflash.cli.store.layouts import read_record
from whiflash.core.errors import ConfigError, InvalidRequestError
from whiflash.serving.trajectories.conversation import Conversation

TRAJ_SET: Final = "SWE-agent .traj"
PAGE: Final = "docs/trajectories.md says what --data takes"


def require_runs(folder: Path) -> None:
    """Raises ConfigError where the folder is not there or holds nothing that could be runs."""
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise ConfigError(f"--data {folder} is {what}; name a folder of recorded runs ({PAGE})")
    if not _is_evaluation_data(folder) and not _files(folder):
        raise ConfigError(f"--data {folder} holds no recorded runs; {PAGE}")


def open_runs(folder: Path, writer: RunWriter, max_runs: int | None) -> Recordings:
    """Evaluation data where files have its names, else each file by its layout."""
    if _is_evaluation_data(folder):
        return RecordedData(folder, writer, max_runs)
    return OwnRuns(folder, writer, max_runs)


def _is_evaluation_data(folder: Path) -> bool:
    return any((folder / f"{one.file}.jsonl.gz").is_file() for one in SETS)


class OwnRuns:
    """The files of a folder as `whiflash store import` reads them. Each is a set; all .traj files,
    which hold a run each, are one. Implements Recordings."""

    def __init__(self, folder: Path, writer: RunWriter, max_runs: int | None = None) -> None:
        self._writer = writer
        self._max_runs = max_runs
        self._files: dict[str, list[Path]] = {}
        for file in _files(folder):
            name = TRAJ_SET if ".traj" in file.suffixes else file.name
            self._files.setdefault(name, []).append(file)
        self.sets = tuple(RecordedSet(name, name) for name in self._files)

    def runs(self, which: RecordedSet) -> list[RecordedRun]:
        """In the order of names and places. Raises ConfigError on a record that is no run, and
        where no run says anything."""
        found = read_files(self._files[which.name], lambda _count: None)
        written = islice(map(self._run, found), self._max_runs)
        runs = [run for run in written if run.turns]
        if not runs:
            raise ConfigError(f"{which.name} holds no turn of an assistant; take it out of --data")
        return runs

    def _run(self, found: FoundRecord) -> RecordedRun:
        if found.problem:
            raise ConfigError(f"{found.place}: {found.problem}")
        try:
            run = read_record(found.value)
            if not isinstance(run, Conversation):
                raise ConfigError(f"{found.place}: an export holds no prompts, so no replay")
            return self._writer.write(run.run_name, run.messages, run.tools)
        except InvalidRequestError as error:
            raise ConfigError(f"{found.place}: {error}") from None


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and is_read(file))
