"""Suite `routing`: its parts in order, each cell kept when it is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from whiflash.bench.progress import say
from whiflash.bench.provenance import collect
from whiflash.bench.routing_cells import Cells, Rows
from whiflash.bench.routing_engine import Asked, RoutingEngines, follow_one
from whiflash.bench.routing_forced import (
    RecordedEffort,
    RecordedText,
    forced_cell,
    recorded_texts,
    survey_recorded,
)
from whiflash.bench.routing_live import batch_cell, single_cell
from whiflash.bench.routing_offline import OfflineLog, offline_rows
from whiflash.bench.routing_peers import Peers
from whiflash.bench.routing_prompts import routing_prompts
from whiflash.bench.routing_rows import GOODPUT, Checkpoints, RoutingRow, routing_rows
from whiflash.bench.runs import encode_parts
from whiflash.core.protocols import TargetInfo
from whiflash.models.files import ModelFiles
from whiflash.models.shipped import shipped_router
from whiflash.models.sources import resolve
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.router_file import RouterFile


@dataclass(frozen=True, slots=True)
class Effort:
    """Prompts of a category, tokens of an answer, repeats of single calls; tokens and repeats of
    batches of the given sizes; what is followed of recorded runs."""

    prompts: int
    max_tokens: int
    repeats: int
    batch_tokens: int
    batch_repeats: int
    batches: tuple[int, ...]
    recorded: RecordedEffort
    has_peers: bool = True


class RoutingRun:
    """What all parts share. cells: folder of what is measured. router: the shipped file, if any;
    rows: of every table."""

    def __init__(
        self,
        model: str,
        data: Path | None,
        checkpoints: Checkpoints,
        effort: Effort,
        engines: RoutingEngines,
        cells: Path,
        is_full: bool,
    ) -> None:
        self.model = model
        self.checkpoints = checkpoints
        self.provenance = collect()
        self._data, self._effort, self._engines = data, effort, engines
        self._place = resolve(model)
        self._base = engines.parts(RoutingRow(GOODPUT, checkpoints.arms))
        self.target: TargetInfo = self._base.target.info
        self.router = shipped_router(ModelFiles.at(self._place).fingerprint())
        self._asked = self._prompts()
        facts = self._facts()
        log, texts = Cells(cells, facts).logged("live, survey", self._survey)
        self._log = OfflineLog.read(log, texts)
        tau = self._log.tau("eagle3", "dflash")
        self.rows = list(routing_rows(checkpoints, tau, self._network(), is_full))
        self._cells = Cells(cells, facts | {"rows": [asdict(row) for row in self.rows]})

    def _facts(self) -> dict[str, Any]:
        """What figures depend on: cells that others left are measured anew."""
        weights = {arm: drafter.weight_hash for arm, drafter in self._base.drafters.items()
                   if hasattr(drafter, "weight_hash")}  # fmt: skip
        return {"model": self.target.fingerprint, "commit": self.provenance.commit,
                "effort": asdict(self._effort), "weights": weights,
                "chain": self.checkpoints.chain, "data": self._data,
                "machine": asdict(self.provenance.machine)}  # fmt: skip

    def _prompts(self) -> Mapping[str, list[Asked]]:
        prompts = routing_prompts(self._effort.prompts, self._effort.max_tokens)
        return {
            category: [Asked(ids, p.max_tokens)
                       for ids, p in zip(encode_parts(self._base, some), some, strict=True)]
            for category, some in prompts.items()
        }  # fmt: skip

    def _network(self) -> Path | None:
        """The shipped router, where it holds the network that `neural` asks."""
        has = self.router is not None and RouterFile.read(self.router).neural is not None
        return self.router if has else None

    def _survey(self, log: Path) -> Rows:
        say("what every arm proposes at every root")
        with self._engines.survey(self.checkpoints.arms, log) as parts:
            return [{"category": category,
                     "numbers": [follow_one(parts.core, one) for one in some]}
                    for category, some in self._asked.items()]  # fmt: skip

    def offline(self) -> Rows:
        """Policies along the survey's live texts."""
        say("policies offline")
        return self._cells.rows("live, offline", partial(offline_rows, self._log, self.rows))

    def live(self, stack: ExitStack) -> Rows:
        """All categories, one request at a time and several at once."""
        self._warm()
        effort = self._effort
        first = next(iter(self._asked.values()))[0]
        peers = Peers.open(self.model, self._place, first, stack) if effort.has_peers else None
        rows: Rows = []
        for category, asked in self._asked.items():
            say(f"{category}, one at a time")
            single = partial(single_cell, self._engines, self.rows, category, asked,
                             effort.repeats, peers)  # fmt: skip
            rows += self._cells.rows(f"{category}, 1", single)
            short = [replace(one, max_tokens=min(one.max_tokens, effort.batch_tokens))
                     for one in asked]  # fmt: skip
            for size in effort.batches:
                say(f"{category}, {size} at once")
                batch = partial(batch_cell, self._engines, self.rows, category, short,
                                effort.batch_repeats, size)  # fmt: skip
                rows += self._cells.rows(f"{category}, {size}", batch)
        return rows

    def _warm(self) -> None:
        """Compiles and measures what is compiled and measured on first use."""
        asked = Asked(next(iter(self._asked.values()))[0].ids, 8)
        for row in self.rows:
            self._engines.run(row, [asked])

    @cached_property
    def _recorded(self) -> Sequence[RecordedText]:
        if self._data is None:
            return ()
        chat = (self._place, self.model)
        return tuple(recorded_texts(self._base, self._data, chat, self._effort.recorded))

    @cached_property
    def _recorded_log(self) -> OfflineLog:
        def survey(log: Path) -> Rows:
            say("recorded: what every arm proposes at every root")
            return survey_recorded(self._engines, self.checkpoints.arms, self._recorded,
                                   self._effort.recorded.surveyed, log)  # fmt: skip

        return OfflineLog.read(*self._cells.logged("recorded, survey", survey))

    def offline_recorded(self) -> Rows:
        """Policies along recorded texts; nothing without --data."""
        if not self._recorded:
            return []
        measure = partial(offline_rows, self._recorded_log, self.rows)
        return self._cells.rows("recorded, offline", measure)

    def forced(self) -> Rows:
        """Recorded agent runs, a cell per set and store."""
        rows: Rows = []
        for text in self._recorded:
            say(f"recorded: {text.category}")
            cell = partial(forced_cell, self._engines, self.rows, text,
                           self._effort.recorded.pairs)  # fmt: skip
            rows += self._cells.rows(f"recorded, {text.category}", cell)
        return rows

    @property
    def surveyed_runs(self) -> Sequence[LoggedRun]:
        """All that was logged, live and recorded."""
        return (*self._log.runs, *(self._recorded_log.runs if self._recorded else ()))
