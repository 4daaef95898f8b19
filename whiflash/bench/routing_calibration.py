"""Suite `routing`: whether drafted nodes come true as often as their drafts say (survival)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from whiflash.bench.suite import Column, Table
from whiflash.config import EngineConfig
from whiflash.routing.heads import SurvivalHeads
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.router_file import RouterFile

NUM_BINS: Final = 10
COLUMNS: Final = (
    Column("arm", "arm"),
    Column("who", "who says it"),
    Column("nodes", "nodes", ","),
    Column("said", "said, mean", ".3f"),
    Column("true", "came true", ".3f"),
    Column("error", "calibration error", ".3f"),
)
_NOTE: Final = (
    "Every node of every proposal of the survey, live and recorded, that was not cut short by the "
    "end of its text. Said: survival, the chance that the node is accepted, its parents too. The "
    "error is the mean over tenths of what was said, weighted by nodes, of the distance to the "
    "share that came true; the tenths are in the JSON and in the plot."
)
Floats = npt.NDArray[np.float64]


def calibration_table(runs: Sequence[LoggedRun], router: Path | None) -> Table:
    """A row per arm as its drafts say it, and as the router's calibration makes it."""
    heads = RouterFile.read(router).heads if router is not None else None
    arms = dict.fromkeys(arm for run in runs for arm in run.free)
    rows = tuple(row for arm in arms for row in _rows(arm, runs, heads))
    return Table("calibration", "Survival: what drafts say and what came true", _NOTE, COLUMNS,
                 rows)  # fmt: skip


def _rows(
    arm: str, runs: Sequence[LoggedRun], heads: SurvivalHeads | None
) -> Iterator[dict[str, Any]]:
    nodes = list(_nodes(arm, runs))
    if not nodes:
        return
    said = np.array([odds for odds, _ in nodes])
    hits = np.array([hit for _, hit in nodes], np.float64)
    yield {"arm": arm, "who": "its draft", **_figures(said, hits)}
    if heads is not None and arm in heads.names:
        calibrated = heads.calibrated(arm, said)
        yield {"arm": arm, "who": "the router", **_figures(calibrated, hits)}


def _nodes(arm: str, runs: Iterable[LoggedRun]) -> Iterator[tuple[float, bool]]:
    """Survival as logged and whether the node came true, where the text is long enough to tell."""
    depth = EngineConfig.model_fields["max_draft_depth"].default
    for run in runs:
        for turn in run.turns:
            for position, root in turn.roots.items():
                proposal = root.known(arm)
                if proposal is None or turn.last - position <= depth:
                    continue
                hits = set(proposal.ranks or ())
                for rank, odds in enumerate(proposal.survival[: proposal.nodes]):
                    yield odds, rank in hits


def _figures(said: Floats, hits: Floats) -> dict[str, Any]:
    numbers = np.minimum((said * NUM_BINS).astype(int), NUM_BINS - 1)
    masks = [numbers == number for number in range(NUM_BINS) if (numbers == number).any()]
    bins = [{"said": round(float(said[mask].mean()), 4),
             "true": round(float(hits[mask].mean()), 4),
             "nodes": int(mask.sum())} for mask in masks]  # fmt: skip
    error = sum(one["nodes"] * abs(one["said"] - one["true"]) for one in bins) / len(said)
    return {"nodes": len(said), "said": float(said.mean()), "true": float(hits.mean()),
            "error": error, "bins": bins}  # fmt: skip
