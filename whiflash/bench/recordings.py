"""Recorded agent runs as tokens: what stood in front of each assistant turn, and the turn."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from whiflash.chat.format import ChatFormat
from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Tokenizer

Ids = npt.NDArray[np.int32]
Json = Mapping[str, Any]
Messages = Sequence[Json]
_KEPT = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """new_context: int32, ids between the end of the last turn (or the start) and this one; target:
    int32, the assistant's ids, the end mark included. is_fork: the template wrote what came before
    anew, so that `new_context` is all of it."""

    new_context: Ids
    target: Ids
    is_fork: bool = False


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run of an agent."""

    run_id: str
    turns: tuple[RecordedTurn, ...]

    @property
    def num_target_tokens(self) -> int:
        return sum(len(turn.target) for turn in self.turns)

    @property
    def num_tokens(self) -> int:
        return self.num_target_tokens + sum(len(turn.new_context) for turn in self.turns)


class RunWriter:
    """Writes messages out by a chat template and splits them into turns."""

    def __init__(self, chat: ChatFormat, tokenizer: Tokenizer) -> None:
        self._chat = chat
        self._tokenizer = tokenizer

    def write(self, run_id: str, messages: Messages, tools: Messages = ()) -> RecordedRun:
        """Raises InvalidRequestError on messages that the template cannot write."""
        return RecordedRun(run_id, tuple(self._turns(messages, tools or None)))

    def _turns(self, messages: Messages, tools: Messages | None) -> Iterator[RecordedTurn]:
        before = ""
        for place, message in enumerate(messages):
            if message["role"] != "assistant" or message.get("is_demo"):
                continue
            prompt = self._chat.render(_plain(messages[:place]), tools)
            written = self._chat.render(_plain(messages[: place + 1]), tools, False)
            if not written.startswith(prompt) or not written[len(prompt) :].strip():
                continue  # not what a model would have been asked to write
            target = written[len(prompt) :].rstrip("\n")
            is_fork = not prompt.startswith(before)
            new = prompt if is_fork else prompt[len(before) :]
            before = prompt + target
            yield RecordedTurn(self._ids(new), self._ids(target), is_fork)

    def _ids(self, text: str) -> Ids:
        return np.array(self._tokenizer.encode(text), np.int32)


def _plain(messages: Messages) -> list[Json]:
    return [{k: m[k] for k in _KEPT if m.get(k) is not None} for m in messages]


@dataclass(frozen=True, slots=True)
class RecordedSet:
    """A set by name: its file, and which of its records belong to it."""

    name: str
    file: str
    is_part: Callable[[Json], bool] = lambda _: True


SETS: Final = (
    RecordedSet("tau-bench airline, 4 trials a task", "tau_bench_airline"),
    RecordedSet(
        "tau-bench airline, every task once", "tau_bench_airline", lambda r: r["trial"] == 0
    ),
    RecordedSet("BFCL multi-turn", "bfcl_multi_turn"),
    RecordedSet("SWE-agent", "swe_agent"),
    RecordedSet("InterCode CTF", "intercode"),
    RecordedSet("InterCode bash", "intercode_bash"),
    RecordedSet("InterCode SQL", "intercode_sql"),
    RecordedSet("InterCode Python", "intercode_python"),
)
"""As the evaluation data holds them; records as its README describes them."""


class Recordings(Protocol):
    """Sets of runs by name, read when they are asked for."""

    @property
    def sets(self) -> Sequence[RecordedSet]: ...

    def runs(self, which: RecordedSet) -> list[RecordedRun]:
        """Those with an assistant's turn. Raises ConfigError on what cannot be read."""
        ...


class RecordedData:
    """A folder of evaluation data. Sets whose file is missing are left out. Implements
    Recordings."""

    def __init__(self, folder: Path, writer: RunWriter, max_runs: int | None = None) -> None:
        """Raises ConfigError where none of the files is there."""
        self._folder = folder
        self._writer = writer
        self._max_runs = max_runs
        self.sets = tuple(one for one in SETS if self._path(one).is_file())
        if not self.sets:
            names = sorted({f"{one.file}.jsonl.gz" for one in SETS})
            raise ConfigError(f"{folder} holds none of {', '.join(names)}; give --data FOLDER")

    def _path(self, which: RecordedSet) -> Path:
        return self._folder / f"{which.file}.jsonl.gz"

    def runs(self, which: RecordedSet) -> list[RecordedRun]:
        """In the file's order, those without an assistant turn left out. Raises ConfigError on a
        damaged file."""
        path = self._path(which)
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                records = (record for record in map(json.loads, lines) if which.is_part(record))
                written = [
                    self._writer.write(str(record["id"]), *self._conversation(which, record))
                    for record in islice(records, self._max_runs)
                ]
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} cannot be read: {error!r}") from None
        return [run for run in written if run.turns]

    def _conversation(self, which: RecordedSet, record: Json) -> tuple[Messages, Messages]:
        if "steps" in record:
            return _steps(record), ()
        messages = record["messages"]
        if which.file == "tau_bench_airline":
            system = (self._folder / "tau_bench_airline_system.txt").read_text("utf-8")
            return [{"role": "system", "content": system}, *messages], self._tools(which, record)
        return messages, self._tools(which, record)

    def _tools(self, which: RecordedSet, record: Json) -> Messages:
        """Those that the run was offered, where the data say so."""
        if which.file == "tau_bench_airline":
            return _list(self._folder / "tau_bench_airline_tools.json")
        if which.file != "bfcl_multi_turn":
            return ()
        by_class = json.loads((self._folder / "bfcl_tools.json").read_text("utf-8"))
        offered = [tool for name in record["classes"] for tool in by_class[name]]
        return [tool for tool in offered if tool["function"]["name"] not in record["excluded"]]


def _list(path: Path) -> Messages:
    found: Messages = json.loads(path.read_text("utf-8"))
    return found


def _steps(record: Json) -> Messages:
    """Raw pairs of action and observation, as turns of a chat."""
    messages: list[Json] = [{"role": "user", "content": record["prompt"]}]
    for step in record["steps"]:
        messages.append({"role": "assistant", "content": step["action"]})
        messages.append({"role": "user", "content": step["observation"]})
    return messages
