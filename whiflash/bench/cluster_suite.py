"""Suite `cluster`: drafter and router elsewhere, gateway and verifiers under load."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from whiflash.core.openmp import BRIEF_SPINS

os.environ.setdefault(*BRIEF_SPINS)  # before torch is imported: it verifies as a verifier does

from whiflash.bench.checkpoints import neural_folders
from whiflash.bench.cluster_load import ScaleRun, edge_rows, scale
from whiflash.bench.cluster_process import Parts, cluster
from whiflash.bench.cluster_rounds import Arm, ArmResult, measure_arm
from whiflash.bench.progress import say
from whiflash.bench.random_drafters import TargetShape, write_dflash, write_eagle3
from whiflash.bench.remote_measure import RemoteCost
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.models.sources import resolve

DTYPE: Final = "float32"


@dataclass(frozen=True, slots=True)
class Effort:
    """Rows at once, tokens of an answer, pairs of runs, seconds of a phase, calls."""

    loads: tuple[int, ...]
    max_tokens: int
    num_pairs: int
    phase_s: float
    num_calls: int


FULL: Final = Effort((1, 4, 16), 64, 3, 40.0, 12)
QUICK: Final = Effort((1, 4), 24, 1, 4.0, 2)

_REMOTE: Final = (
    Column("arm", "arm"), Column("rows", "rows"), Column("pairs", "pairs"),
    Column("steps", "steps"), Column("local_ms", "drafting here, ms", ".2f"),
    Column("remote_ms", "elsewhere, ms", ".2f"),
    Column("round_ms", "round, drafting here, ms", ".1f"),
    Column("share", "more drafting, of a round", ".1%"), Column("most", "most of a pair", ".1%"),
    Column("whole", "longer whole round", ".1%"),
)  # fmt: skip
_SPLIT: Final = (
    Column("arm", "arm"), Column("rows", "rows"), Column("route", "route, ms", ".2f"),
    Column("transport", "transport", ".2f"), Column("catch_up", "catch-up", ".2f"),
    Column("draft", "draft", ".2f"), Column("verify", "verify", ".2f"),
    Column("commit", "commit and rest", ".2f"), Column("total", "whole round", ".2f"),
    Column("remote_share", "decided by the router", ".1%"),
    Column("late_share", "too late", ".1%"), Column("deadline_ms", "deadline, ms", ".2f"),
)  # fmt: skip
_SCALE: Final = (
    Column("name", "phase"), Column("seconds", "seconds", ".0f"), Column("turns", "turns"),
    Column("rate", "tokens/s", ".1f"),
)  # fmt: skip
_EDGE: Final = (Column("way", "way"), Column("edge_us", "edge per token, us", ".0f"))
_START: Final = (Column("part", "part"), Column("seconds", "serves after, s", ".1f"))


def run(options: SuiteOptions) -> SuiteResult:
    """About a quarter of an hour on two cores; `is_quick` about three minutes."""
    effort = QUICK if options.is_quick else FULL
    folders = neural_folders(options.model, options.drafters)
    with tempfile.TemporaryDirectory() as made, cluster() as parts:
        folder = Path(made)
        arms = {
            kind: _measure(parts, folder, options.model, kind, folders.get(kind), effort)
            for kind in ("eagle3", "dflash")
        }
        say("edge")
        edge = edge_rows(parts, folder, options.model, effort.num_calls, effort.max_tokens)
        say("1 to 3 to 1 verifiers")
        scaled = scale(parts, folder, options.model, effort.phase_s, effort.max_tokens)
    costs = [cost for result in arms.values() for cost in result.costs]
    return SuiteResult(
        title="parts in processes of their own",
        setting=_setting(options.model, folders),
        tables=(
            Table("remote", "Drafting elsewhere", _REMOTE_NOTE, _REMOTE, _cost_rows(costs)),
            Table("split", "A round with drafter and router elsewhere", _SPLIT_NOTE, _SPLIT,
                  tuple(row for result in arms.values() for row in result.split)),
            _scale_table(scaled),
            Table("edge", "Edge", _EDGE_NOTE, _EDGE, tuple(edge)),
            Table("start", "Start-up", _START_NOTE, _START, _start_rows(arms, edge)),
        ),
        highlights=_highlights(costs, scaled),
    )  # fmt: skip


def _measure(
    parts: Parts, folder: Path, model: str, kind: str, place: str | None, effort: Effort
) -> ArmResult:
    say(f"{kind} elsewhere")
    write = write_eagle3 if kind == "eagle3" else write_dflash
    found = place or write(folder / f"{kind}-random", TargetShape.read(resolve(model)))
    spec = f"eagle3:{found},tree=chain" if kind == "eagle3" else f"dflash:{found}"
    arm = Arm(kind, spec, model, DTYPE)
    return measure_arm(parts, folder, arm, effort.loads, effort.max_tokens, effort.num_pairs)


def _cost_rows(costs: Sequence[RemoteCost]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"arm": cost.arm, "rows": cost.rows, "pairs": len(cost.local),
         "steps": sum(run.num_steps for run in cost.remote),
         "local_ms": median(run.draft_ms for run in cost.local),
         "remote_ms": median(run.draft_ms for run in cost.remote),
         "round_ms": median(run.total_ms for run in cost.local),
         "share": cost.share, "most": max(cost.shares), "whole": cost.whole_share}
        for cost in costs
    )  # fmt: skip


def _scale_table(run: ScaleRun) -> Table:
    rows = tuple(
        {"name": phase.name, "seconds": phase.seconds, "turns": phase.turns,
         "rate": phase.tokens / max(phase.seconds, 1e-9)}
        for phase in run.phases
    )  # fmt: skip
    note = (
        f"Four callers without a pause, a thread for each verifier. Failed turns: {run.failed}; "
        f"turns with another text than alone: {run.differing}; turns that went on at another "
        f"verifier: {run.moves}. All "
        "verifiers share the machine's cores, so three are not faster than one here; a phase "
        "`1 to 3` holds their start, `3 to 1` their drain."
    )
    return Table("scale", "Verifiers that come and go under load", note, _SCALE, rows)


def _start_rows(
    arms: dict[str, ArmResult], edge: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], ...]:
    rows = [
        {"part": f"{role} ({kind})" if role == "drafter" else role, "seconds": seconds}
        for kind, result in arms.items()
        for role, seconds in result.starts_s.items()
    ]
    whole = next(row["start_s"] for row in edge if row["start_s"] is not None)
    return (*rows, {"part": "verifier and gateway, one after the other", "seconds": whole})


def _setting(model: str, folders: Mapping[str, str]) -> dict[str, Any]:
    made = [kind for kind in ("eagle3", "dflash") if kind not in folders]
    drafters = (
        f"{' and '.join(made)} of real shape with random weights: what they cost is real, what "
        "they guess is not" if made else "trained"
    )  # fmt: skip
    return {
        "model": model,
        "drafters": drafters,
        "parts": "plain processes on one machine (`services.process`), gRPC over loopback; Ray, "
        "which is not on the way of a token, does not run",
        "arithmetic": f"{DTYPE} here and there; rounds without prefill, medians",
    }


_REMOTE_NOTE: Final = (
    "The same drafts and texts both times, runs in alternation, medians. Drafting: asking, "
    "waiting, catch-up. The goal is under 10 % of a round. Longer: the forward included. Every "
    "draft is waited for here; by default a step waits for one verify forward at most."
)
_SPLIT_NOTE: Final = (
    "Route: signals, the router's answer, the joint choice. Transport: waiting for the draft "
    "without what the drafter itself took (draft). Catch-up: handing fused taps over; absorbing "
    "them is part of transport. The deadline of the router is the default."
)
_EDGE_NOTE: Final = (
    "One call at a time, no drafting. What of a call was neither queue, prefill nor decoding, per "
    "token: connection, template, parsing, event loops, and in a cluster the way to the verifier."
)
_START_NOTE: Final = "From the start of the process until it serves; the model's file is cached."


def _highlights(costs: Sequence[RemoteCost], scaled: ScaleRun) -> tuple[Highlight, ...]:
    worst = max(costs, key=lambda cost: cost.share)
    return (
        Highlight(
            what=f"cluster, drafter elsewhere, most of all: {worst.arm}, {worst.rows} rows",
            figure=f"{worst.share:+.1%} of a round",
            twin="the same drafter in the verifier's process",
            setting="one machine, loopback",
        ),
        Highlight(
            what="cluster, 1 to 3 to 1 verifiers under load",
            figure=f"{scaled.failed} failed, {scaled.differing} other texts of "
            f"{sum(phase.turns for phase in scaled.phases)} turns",
            twin="each turn alone",
            setting="one machine, plain processes",
        ),
    )
