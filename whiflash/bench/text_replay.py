"""What a shared store would have saved on recorded agent runs: the experiments of
`whiflash replay text` and of suite `store`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from whiflash.bench.draft_rules import RULES
from whiflash.bench.forced_replay import ForcedReplay, ReplayResult, ReplaySetting
from whiflash.bench.recordings import (
    RecordedData,
    RecordedRun,
    RecordedSet,
    Recordings,
    RunWriter,
)
from whiflash.chat.format import ChatFormat
from whiflash.models.files import ModelFiles
from whiflash.models.sources import resolve
from whiflash.models.tokenizer import HFTokenizer

SILOS: Final = (1, 2, 4, 8, 16)
DELAYS: Final = (0, 4, 16, 32)
FOREIGN_TIMES: Final = 9  # foreign tokens per own token of the warm-up: 90 %
LOCAL: Final = ReplaySetting(has_store=False)
SHARED: Final = ReplaySetting(has_context=False)
BOTH: Final = ReplaySetting()
Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReplaySizes:
    """What is run: full sets, or the first runs of each with the main settings alone."""

    max_runs: int | None = None
    num_detailed: int = 2
    silos: tuple[int, ...] = SILOS
    delays: tuple[int, ...] = DELAYS


FULL: Final = ReplaySizes()
QUICK: Final = ReplaySizes(max_runs=4, num_detailed=1, silos=(1, 2), delays=(0, 1))


class TextReplay:
    """All experiments on one folder of data. The first half of a set's runs warms the store and is
    not measured; each run of the second half enters it when it is done. Probabilities are learned
    in the second half alone."""

    def __init__(self, data: Recordings, sizes: ReplaySizes, say: Say) -> None:
        self._data = data
        self._sizes = sizes
        self._say = say
        self._known: dict[str, list[RecordedRun]] = {}

    def sources(self) -> list[Row]:
        """Local, shared and both, for every set."""
        rows = []
        for which in self._data.sets:
            runs = self._runs(which)
            row: Row = {
                "set": which.name,
                "runs": len(runs),
                "target_tokens": sum(run.num_target_tokens for run in runs),
                "tokens": sum(run.num_tokens for run in runs),
            }
            for name, setting in (("local", LOCAL), ("shared", SHARED), ("both", BOTH)):
                self._say(f"{which.name}: {name}")
                row |= _named(name, self._measured(which, setting))
            rows.append(row)
        return rows

    def silos(self) -> list[Row]:
        """Both sources, the runs spread over stores that see their own alone."""
        settings = [(f"{n}", replace(BOTH, num_silos=n)) for n in self._sizes.silos]
        return [self._line(which, [*settings, ("no store", LOCAL)]) for which in self._detailed()]

    def delays(self) -> list[Row]:
        """Both sources, what a run taught being seen so many runs later."""
        settings = [(f"{n}", replace(BOTH, delay_runs=n)) for n in self._sizes.delays]
        return [self._line(which, settings) for which in self._detailed()]

    def rules(self) -> list[Row]:
        """Both sources under every rule for the length of drafts, of the first set."""
        rows = []
        for which in self._detailed()[:1]:
            for rule in RULES:
                self._say(f"{which.name}: {rule.name}")
                result = self._measured(which, replace(BOTH, rule=rule))
                drafted = result.num_drafted / (result.num_rounds + result.num_ending_rounds)
                rows.append({"rule": rule.name, **_figures(result), "drafted": drafted})
        return rows

    def foreign(self) -> list[Row]:
        """Sets that are small against the others: their store holds 90 % of other sets' tokens."""
        rows = []
        for which in self._data.sets:
            others = self._foreign_runs(which)
            if not others:
                continue
            self._say(f"{which.name}: with foreign runs")
            own, mixed = self._measured(which, BOTH), self._measured(which, BOTH, others)
            rows.append(
                {"set": which.name, "foreign_runs": len(others)}
                | _named("own", own) | _named("mixed", mixed)
                | {"kept": mixed.tokens_per_round / own.tokens_per_round}
            )  # fmt: skip
        return rows

    def _detailed(self) -> Sequence[RecordedSet]:
        return self._data.sets[: self._sizes.num_detailed]

    def _runs(self, which: RecordedSet) -> list[RecordedRun]:
        if which.name not in self._known:
            self._say(f"reading {which.name}")
            self._known[which.name] = self._data.runs(which)
        return self._known[which.name]

    def _line(self, which: RecordedSet, settings: Sequence[tuple[str, ReplaySetting]]) -> Row:
        row: Row = {"set": which.name}
        for name, setting in settings:
            self._say(f"{which.name}: {name}")
            row[name] = self._measured(which, setting).tokens_per_round
        return row

    def _measured(
        self, which: RecordedSet, setting: ReplaySetting, others: Sequence[RecordedRun] = ()
    ) -> ReplayResult:
        runs = self._runs(which)
        half = len(runs) // 2
        with ForcedReplay(setting) as replay:
            replay.warm(_mixed(runs[:half], others))
            return replay.measure(runs[half:])

    def _foreign_runs(self, which: RecordedSet) -> list[RecordedRun]:
        """Of other files, as many as make 90 % of the warm store; none where they are too few."""
        runs = self._runs(which)
        wanted = FOREIGN_TIMES * sum(run.num_target_tokens for run in runs[: len(runs) // 2])
        chosen: list[RecordedRun] = []
        files = {which.file}
        for other in self._data.sets:
            if other.file in files:
                continue
            files.add(other.file)
            for run in self._runs(other):
                if wanted <= 0:
                    return chosen
                chosen.append(run)
                wanted -= run.num_target_tokens
        return chosen if wanted <= 0 else []


def _mixed(own: Sequence[RecordedRun], others: Sequence[RecordedRun]) -> Iterator[RecordedRun]:
    """Own runs spread evenly among the others."""
    step = len(others) / max(len(own), 1)
    for number, run in enumerate(own):
        yield from others[int(number * step) : int((number + 1) * step)]
        yield run


def _figures(result: ReplayResult) -> Row:
    return {
        "accepted_length": result.accepted_length,
        "tokens_per_round": result.tokens_per_round,
        "wasted": result.wasted,
    }


def _named(name: str, result: ReplayResult) -> Row:
    return {f"{name}_{key}": value for key, value in _figures(result).items()}


def run_writer(model: str) -> RunWriter:
    """With a model's tokenizer and template; its weights are not read. Raises ModelError."""
    path = resolve(model)
    files = ModelFiles.at(path)
    tokenizer = HFTokenizer.load(files.folder, files.gguf_name)
    return RunWriter(ChatFormat.for_model(path, model), tokenizer)


def open_replay(model: str, folder: Path, sizes: ReplaySizes, say: Say) -> TextReplay:
    """Over a folder of evaluation data. Raises ConfigError, ModelError."""
    return TextReplay(RecordedData(folder, run_writer(model), sizes.max_runs), sizes, say)
