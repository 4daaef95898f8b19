"""Records of policies as messages and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from whiflash.core.costs import CostCurve
from whiflash.core.rows import Choice, Outcome, Prediction, RouteRow
from whiflash.core.signals import Signals
from whiflash.rpc.convert import read_tree, tree_message
from whiflash.rpc.v1 import router_service_pb2 as pb


def row_message(row: RouteRow, has_hidden: bool = True) -> pb.RouteRow:
    """`has_hidden` False leaves the hidden state out: no policy learns from it."""
    return pb.RouteRow(
        sequence_id=row.sequence_id,
        namespace=row.namespace,
        signals=_signals_message(row.signals, has_hidden),
        arms=row.arms,
        drafts={arm: tree_message(tree) for arm, tree in row.drafts.items()},
        matched=row.matched,
        max_nodes=row.max_nodes,
        context_tokens=row.context_tokens,
        backlog=dict(row.backlog),
        load=row.load,
        recent_rates=dict(row.recent_rates),
    )


def read_row(message: pb.RouteRow) -> RouteRow:
    return RouteRow(
        sequence_id=message.sequence_id,
        namespace=message.namespace,
        signals=_read_signals(message.signals),
        arms=tuple(message.arms),
        drafts={arm: read_tree(tree) for arm, tree in sorted(message.drafts.items())},
        matched=message.matched,
        max_nodes=message.max_nodes,
        context_tokens=message.context_tokens,
        backlog=dict(message.backlog),
        load=message.load,
        recent_rates=dict(message.recent_rates),
    )


def _signals_message(signals: Signals, has_hidden: bool) -> pb.RowSignals:
    hidden = signals.hidden if has_hidden else None
    agreement = signals.agreement
    return pb.RowSignals(
        entropy=signals.entropy,
        margin=signals.margin,
        hidden=None if hidden is None else np.ascontiguousarray(hidden, "<f4").tobytes(),
        recent=signals.recent,
        agreement=None if agreement is None else pb.SignalAgreement(values=agreement),
    )


def _read_signals(message: pb.RowSignals) -> Signals:
    has_hidden, has_agreement = message.HasField("hidden"), message.HasField("agreement")
    return Signals(
        message.entropy,
        message.margin,
        np.frombuffer(message.hidden, "<f4").astype(np.float32) if has_hidden else None,
        tuple(message.recent),
        tuple(message.agreement.values) if has_agreement else None,
    )


def outcome_message(outcome: Outcome, version: int) -> pb.RowOutcome:
    """version: of the policy that chose."""
    choice = outcome.choice
    return pb.RowOutcome(
        row=row_message(outcome.row, has_hidden=False),
        choice=pb.RowChoice(
            arm=choice.arm,
            budget=choice.budget,
            is_fixed=choice.is_fixed,
            survival=None if choice.survival is None else _doubles(choice.survival),
        ),
        drafted=outcome.drafted,
        accepted=outcome.accepted,
        emitted=outcome.emitted,
        ended=outcome.ended,
        policy_version=version,
        propensity=outcome.propensity,
    )


def read_outcome(message: pb.RowOutcome) -> Outcome:
    choice = message.choice
    survival = _read_doubles(choice.survival) if choice.HasField("survival") else None
    return Outcome(
        read_row(message.row),
        Choice(choice.arm, choice.budget, choice.is_fixed, survival),
        message.drafted,
        message.accepted,
        message.emitted,
        message.ended,
        message.propensity,
    )


def prediction_message(prediction: Prediction) -> pb.RowPrediction:
    fixed = prediction.fixed
    return pb.RowPrediction(
        fixed_arm=None if fixed is None else fixed[0],
        fixed_budget=0 if fixed is None else fixed[1],
        survival={arm: _doubles(odds) for arm, odds in prediction.survival.items()},
    )


def read_prediction(message: pb.RowPrediction) -> Prediction:
    fixed = (message.fixed_arm, message.fixed_budget) if message.HasField("fixed_arm") else None
    survival: Mapping[str, npt.NDArray[np.float64]] = {
        arm: _read_doubles(data) for arm, data in sorted(message.survival.items())
    }
    return Prediction(fixed, survival)


def curve_message(curve: CostCurve) -> list[pb.CostPoint]:
    return [pb.CostPoint(tokens=tokens, ms=ms) for tokens, ms in curve.points]


def read_curve(points: list[pb.CostPoint]) -> CostCurve:
    """Raises ValueError on points that are no curve."""
    return CostCurve(tuple((point.tokens, point.ms) for point in points))


def _doubles(values: npt.NDArray[np.float64]) -> bytes:
    return np.ascontiguousarray(values, "<f8").tobytes()


def _read_doubles(data: bytes) -> npt.NDArray[np.float64]:
    return np.frombuffer(data, "<f8").astype(np.float64)
