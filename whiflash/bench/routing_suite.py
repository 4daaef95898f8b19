"""Suite `routing`: every arm, the published controllers and goodput on the same text, live, offline
against the clairvoyant choice, and (with --data) on recorded agent runs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from whiflash.bench.checkpoints import neural_folders, require_folder
from whiflash.bench.progress import say
from whiflash.bench.provenance import collect
from whiflash.bench.routing_cells import Cells
from whiflash.bench.routing_engine import BATCH, Asked, RoutingEngines
from whiflash.bench.routing_forced import forced_cells, forced_table
from whiflash.bench.routing_live import Twins, batch_cell, live_table, single_cell
from whiflash.bench.routing_mix import goals_table, mix_highlights, mix_table
from whiflash.bench.routing_offline import OfflineLog, closed_gap, offline_table
from whiflash.bench.routing_prompts import routing_prompts
from whiflash.bench.routing_rows import GOODPUT, RoutingRow, every_arm, routing_rows
from whiflash.bench.runs import encode_parts
from whiflash.bench.suite import SuiteOptions, SuiteResult, Table
from whiflash.bench.transformers_twin import faster_dtype
from whiflash.drafters.registry import parse_specs
from whiflash.models.files import ModelFiles
from whiflash.models.shipped import shipped_router
from whiflash.models.sources import resolve


@dataclass(frozen=True, slots=True)
class Effort:
    """Prompts of a category, tokens of an answer, repeats of single calls and of batches (of the
    given sizes); conversations and turns of each recorded set."""

    prompts: int
    max_tokens: int
    repeats: int
    batch_repeats: int
    batches: tuple[int, ...]
    conversations: int
    max_turns: int
    has_peers: bool = True


NORMAL: Final = Effort(3, 96, 3, 5, (BATCH,), 2, 6)
FULL: Final = Effort(3, 128, 5, 7, (4, BATCH), 4, 12)
QUICK: Final = Effort(1, 8, 1, 1, (2,), 1, 1, has_peers=False)


def run(options: SuiteOptions) -> SuiteResult:
    """Under an hour on two cores; `is_full` several hours, cell by cell; `is_quick` minutes."""
    effort = QUICK if options.is_quick else FULL if options.is_full else NORMAL
    folders = neural_folders(options.model, options.drafters)
    for kind in ("eagle3", "dflash"):
        require_folder(folders, kind, options.model)
    with ExitStack() as stack:
        engines = stack.enter_context(RoutingEngines(options.model))
        measured = _Measured(options, effort, folders, engines)
        offline = measured.offline()
        rows = measured.live(stack)
        forced = measured.forced()
        target = engines.parts(measured.rows[-1]).target.info
        has_amx = measured.provenance.machine.has_amx
        live, mix = live_table(rows), mix_table(rows)
        goals = goals_table(rows, mix, closed_gap(offline), has_amx)
        return SuiteResult(
            title="arms, controllers and goodput on the same text",
            setting={
                "model": f"{options.model}, {target.dtype}, {target.exactness}",
                "arms": "retrieval, eagle3 (chain; its tree in an engine of its own), dflash, "
                "ddtree; a router file is "
                + ("there" if measured.router else "not there, so there is no row `neural`"),
                "AMX": "yes" if has_amx else "no",
                "peers": "transformers in its faster dtype, one request at a time"
                if effort.has_peers
                else "left out",
            },
            tables=(live, mix, goals, offline, *forced),
            highlights=tuple(mix_highlights(mix)),
        )


class _Measured:
    """What all parts of the run share."""

    def __init__(
        self,
        options: SuiteOptions,
        effort: Effort,
        folders: Mapping[str, str],
        engines: RoutingEngines,
    ) -> None:
        self._options, self._effort, self._engines = options, effort, engines
        self._arms = every_arm(folders)
        self._model_folder = resolve(options.model)
        self.router = shipped_router(ModelFiles.at(self._model_folder).fingerprint())
        base = engines.parts(RoutingRow(GOODPUT, self._arms))
        prompts = routing_prompts(effort.prompts, effort.max_tokens)
        self._asked: Mapping[str, list[Asked]] = {
            category: [Asked(ids, p.max_tokens)
                       for ids, p in zip(encode_parts(base, some), some, strict=True)]
            for category, some in prompts.items()
        }  # fmt: skip
        self._log = self._survey()
        self._tau = self._log.tau("eagle3", "dflash")
        self.rows = list(routing_rows(folders, self._tau, self.router, options.is_full))
        weights = {arm: drafter.weight_hash for arm, drafter in base.drafters.items()
                   if hasattr(drafter, "weight_hash")}  # fmt: skip
        names = [row.name for row in self.rows]
        self.provenance = collect()
        facts = {"model": options.model, "commit": self.provenance.commit,
                 "effort": asdict(effort), "rows": names, "weights": weights}  # fmt: skip
        self._cells = Cells(options.cells, facts)

    def _survey(self) -> OfflineLog:
        say("what every arm proposes at every root")
        asked = [one for some in self._asked.values() for one in some]
        with tempfile.TemporaryDirectory(prefix="whiflash-routing-") as folder:
            log = Path(folder) / "rounds.zst"
            numbers = iter(self._engines.survey(self._arms, asked, log))
            by_category = {category: [next(numbers) for _ in some]
                           for category, some in self._asked.items()}  # fmt: skip
            return OfflineLog.read(log, by_category)

    def offline(self) -> Table:
        """Policies along the survey's texts; `neural` needs hidden states that no log holds."""
        say("policies offline")
        arms = [spec.kind for spec in parse_specs(self._arms)]
        policies = [row.policy for row in self.rows
                    if not row.is_static and row.name != "neural"]  # fmt: skip
        return offline_table(self._log, arms, policies)

    def live(self, stack: ExitStack) -> list[dict[str, Any]]:
        """All categories, one request at a time and several at once."""
        self._warm()
        twins = self._peers(stack)
        rows: list[dict[str, Any]] = []
        for category, asked in self._asked.items():
            say(f"{category}, one at a time")
            single = partial(single_cell, self._engines, self.rows, category, asked,
                             self._effort.repeats, twins)  # fmt: skip
            rows += self._cells.rows(f"{category}, 1", single)
            for size in self._effort.batches:
                say(f"{category}, {size} at once")
                batch = partial(batch_cell, self._engines, self.rows, category, asked,
                                self._effort.batch_repeats, size)  # fmt: skip
                rows += self._cells.rows(f"{category}, {size}", batch)
        return rows

    def _warm(self) -> None:
        """Compiles and measures what is compiled and measured on first use."""
        asked = Asked(next(iter(self._asked.values()))[0].ids, 8)
        for row in self.rows:
            self._engines.run(row, [asked])

    def _peers(self, stack: ExitStack) -> Twins | None:
        if not self._effort.has_peers:
            return None
        some = [one[0].ids for one in self._asked.values()][:1]
        twin, _ = faster_dtype(self._model_folder, some, 16, 2)
        stack.callback(twin.close)
        return Twins(twin)

    def forced(self) -> Sequence[Table]:
        """Recorded agent runs, where --data names any."""
        if self._options.data is None:
            return ()
        parts = self._engines.parts(self.rows[-1])
        pinned = [row for row in self.rows if row.drafters == self._arms and row.policy == GOODPUT]
        chat = (self._model_folder, self._options.model)
        cells = forced_cells(parts, self._options.data, chat, pinned, self._effort.conversations,
                             self._effort.max_turns)  # fmt: skip
        rows: list[dict[str, Any]] = []
        for name, measure in cells:
            say(f"recorded: {name}")
            rows += self._cells.rows(name, measure)
        return (forced_table(rows),)
