"""Suite `routing`: every arm, the published controllers and goodput on the same text, live, offline
against the clairvoyant choice, and (with --data) on recorded agent runs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from whiflash.bench.checkpoints import neural_folders, require_folder
from whiflash.bench.routing_calibration import calibration_table
from whiflash.bench.routing_engine import BATCH, RoutingEngines
from whiflash.bench.routing_forced import RecordedEffort, forced_table
from whiflash.bench.routing_goals import LIVE, RECORDED, goals_table
from whiflash.bench.routing_live import live_table
from whiflash.bench.routing_mix import mix_highlights, mix_table
from whiflash.bench.routing_offline import closed_gap, offline_table, with_offline
from whiflash.bench.routing_rows import Checkpoints
from whiflash.bench.routing_run import Effort, RoutingRun
from whiflash.bench.suite import SuiteOptions, SuiteResult

# Five pairs are the fewest that bound a median with 95 %.
_SETS: Final = ("tau_bench_airline", "bfcl_multi_turn", "swe_agent", "intercode_bash")
NORMAL: Final = Effort(3, 64, 2, 32, 5, (BATCH,), RecordedEffort(5, 6, 64, 5, 2, _SETS))
FULL: Final = Effort(3, 128, 5, 96, 8, (4, BATCH), RecordedEffort(5, 12, 256, 8, 5))
QUICK: Final = Effort(1, 8, 1, 8, 1, (2,), RecordedEffort(1, 1, 8, 1, 1, _SETS), has_peers=False)


def run(options: SuiteOptions) -> SuiteResult:
    """Under an hour on two cores; `is_full` several hours; both cell by cell, where `cells` names a
    folder; `is_quick` minutes."""
    effort = QUICK if options.is_quick else FULL if options.is_full else NORMAL
    folders = neural_folders(options.model, options.drafters)
    for kind in ("eagle3", "dflash"):
        require_folder(folders, kind, options.model)
    with ExitStack() as stack:
        engines = stack.enter_context(RoutingEngines(options.model))
        cells = options.cells or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="whiflash-routing-"))
        )
        routing = RoutingRun(
            options.model, options.data, Checkpoints.of(options.model, folders), effort, engines,
            cells, options.is_full,
        )  # fmt: skip
        return _result(routing, effort, stack)


def _result(routing: RoutingRun, effort: Effort, stack: ExitStack) -> SuiteResult:
    """Measures all parts, those that say most first."""
    offline = routing.offline()
    live = list(with_offline(routing.live(stack), offline))
    offline_recorded = routing.offline_recorded()
    forced = list(with_offline(routing.forced(), offline_recorded))
    gaps = {LIVE: closed_gap(offline), RECORDED: closed_gap(offline_recorded)}
    has_amx = routing.provenance.machine.has_amx
    tables = [live_table(live), mix_table(live), goals_table(live, forced, gaps, has_amx)]
    if forced:
        tables.append(forced_table(forced))
    tables += [
        offline_table([*offline, *offline_recorded]),
        calibration_table(routing.surveyed_runs, routing.router),
    ]
    target = routing.target
    return SuiteResult(
        title="arms, controllers and goodput on the same text",
        setting={
            "model": f"{routing.model}, {target.dtype}, {target.exactness}",
            "arms": f"retrieval, eagle3 ({routing.checkpoints.chain}; its tree in an engine of its "
            "own), dflash, ddtree; a router file is "
            + ("there" if routing.router else "not there, so there is no row `neural`"),
            "answers": f"{effort.prompts} prompts a category, at most {effort.max_tokens} tokens "
            f"one at a time, {effort.batch_tokens} in batches",
            "AMX": "yes" if has_amx else "no",
            "peers": "transformers in its faster dtype and llama.cpp on the model's own GGUF file, "
            "one request at a time"
            if effort.has_peers
            else "left out",
        },
        tables=tuple(tables),
        highlights=tuple(mix_highlights(live)),
    )
