"""A round log as runs of turns (its records: engine/round_records.py, docs/policies.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import StepCost
from whiflash.core.shape import DraftShape
from whiflash.core.signals import Signals
from whiflash.routing.replay.costs import ReplayCosts
from whiflash.routing.replay.turns import Proposal, Root, Turn

Record = Mapping[str, Any]


@dataclass(slots=True)
class LoggedRun:
    """One engine's life. free: by arm, whether it proposes at every root before the choice;
    shapes: of the arms' drafts, as far as they are known."""

    run: str
    target: str
    free: dict[str, bool]
    costs: ReplayCosts
    turns: list[Turn] = field(default_factory=list)
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)


class _Step:
    """The lines of one engine step, which all hold its times."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.num_lines = self.drafted = self.emitted = 0
        self.asked: dict[str, int] = {}

    def add(self, record: Record) -> None:
        self.num_lines += 1
        self.drafted += record["drafted"]
        self.emitted += record["emitted"]
        for arm in record["proposed"]:
            self.asked[arm] = self.asked.get(arm, 0) + 1

    def teach(self, costs: ReplayCosts) -> None:
        """Only a step whose lines are all there: others would be taken for prefill."""
        record = self.record
        if self.num_lines < record["batch"]:
            return
        is_decode_only = record["rows"] == record["batch"] + self.drafted
        cost = StepCost(
            tokens=record["rows"],
            verify_ms=record["verify_ms"],
            draft_ms=record["draft_ms"],
            total_ms=record["total_ms"],
            emitted=self.emitted,
            was_plain=self.drafted == 0,
            was_decode_only=is_decode_only,
            catch_up={arm: (v["tokens"], v["ms"]) for arm, v in record["catch_up"].items()},
        )
        costs.observe(cost, record["batch"], self.asked)


class _RunReader:
    """Collects one run's records, in any order within a turn."""

    def __init__(self, head: Record) -> None:
        points = sorted((int(count), float(ms)) for count, ms in head["verify_ms"].items())
        costs = ReplayCosts(CostCurve(tuple(points)))
        shapes = {arm: DraftShape(**shape) for arm, shape in head.get("shapes", {}).items()}
        self.run = LoggedRun(head["run"], head["target"], dict(head["free"]), costs, shapes=shapes)
        self._turns: dict[int, Turn] = {}
        self._ranks: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self._shadows: list[Record] = []
        self._step: _Step | None = None

    def round(self, record: Record) -> None:
        if self._step is None or self._step.record["step"] != record["step"]:
            self._end_step()
            self._step = _Step(record)
        self._step.add(record)
        turn = self._turns.setdefault(record["sequence"], Turn(record["sequence"]))
        turn.last = max(turn.last, record["position"] + record["emitted"])
        if record["emitted"] > 0:
            turn.roots[record["position"]] = _root(record)

    def settled(self, record: Record) -> None:
        by_depth = sorted((int(depth), rank) for depth, rank in record["ranks"].items())
        key = record["sequence"], record["position"], record["arm"]
        self._ranks[key] = tuple(rank for _, rank in by_depth)

    def shadow(self, record: Record) -> None:
        self._shadows.append(record)

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.teach(self.run.costs)

    def finish(self) -> LoggedRun:
        self._end_step()
        for record in self._shadows:
            root = self._root_at(record["sequence"], record["position"])
            if root is not None:
                root.proposals.update(_proposals(record))
        for (sequence, position, arm), ranks in self._ranks.items():
            root = self._root_at(sequence, position)
            if root is not None and arm in root.proposals:
                old = root.proposals[arm]
                root.proposals[arm] = Proposal(old.nodes, old.survival, ranks)
        self.run.costs.freeze()
        self.run.turns = [turn for turn in self._turns.values() if turn.has_choice]
        return self.run

    def _root_at(self, sequence: int, position: int) -> Root | None:
        turn = self._turns.get(sequence)
        return None if turn is None else turn.roots.get(position)


def _proposals(record: Record) -> dict[str, Proposal]:
    survival = record["survival"]
    return {
        arm: Proposal(nodes, tuple(survival.get(arm, ())))
        for arm, nodes in record["proposed"].items()
    }


def _root(record: Record) -> Root:
    if record["entropy"] is None:  # no room for a draft: nobody has a choice there
        return Root(Signals(math.nan, math.nan), 0, 0, record["emitted"])
    signals = Signals(record["entropy"], record["margin"], recent=tuple(record["recent"]))
    return Root(signals, record["matched"], record["max_nodes"], record["emitted"],
                _proposals(record))  # fmt: skip


def logged_runs(records: Iterable[Record]) -> list[LoggedRun]:
    """The runs of a log, in order; runs without a decode round are left out. Raises ConfigError on
    records of another version."""
    readers: list[_RunReader] = []
    for record in records:
        kind = record.get("kind")
        if kind == "run":
            # Every file of the log begins with its run's head.
            if not readers or readers[-1].run.run != record["run"]:
                readers.append(_RunReader(record))
        elif not readers or kind not in ("round", "settled", "shadow"):
            raise ConfigError("the round log was written by another version: record it anew "
                              "(round_log in the configuration, with --policy survey)")  # fmt: skip
        elif kind == "round":
            readers[-1].round(record)
        elif kind == "shadow":
            readers[-1].shadow(record)
        else:
            readers[-1].settled(record)
    return [run for run in (reader.finish() for reader in readers) if run.turns]
