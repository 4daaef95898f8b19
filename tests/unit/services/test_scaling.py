"""How many replicas there should be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.scaling import (
    DRAFTER_TARGETS,
    VERIFIER_TARGETS,
    BusyShare,
    LoadPolicy,
    wanted_replicas,
)

TARGET_BUSY = VERIFIER_TARGETS["busy"]


def of_each(values: list[float]) -> dict[str, float]:
    return {str(number): value for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("busy", "kv", "wanted"),
    [
        ([0.0], [0.0], 1),
        ([0.7], [0.0], 1),
        ([0.71], [0.0], 2),
        ([2.0, 2.0], [0.1, 0.1], 6),
        ([0.1, 0.1], [0.9, 0.9], 3),
        ([0.1, 0.1, 0.1], [0.0, 0.0, 0.0], 1),
    ],
)
def test_as_many_as_bring_every_signal_to_its_target(
    busy: list[float], kv: list[float], wanted: int
) -> None:
    reports = {"busy": of_each(busy), "kv": of_each(kv)}
    assert wanted_replicas(reports, VERIFIER_TARGETS) == wanted


@pytest.mark.parametrize(("busy", "wanted"), [([0.5], 1), ([0.95], 2), ([1.0, 1.0], 4)])
def test_drafters_follow_what_verifiers_ask_of_them(busy: list[float], wanted: int) -> None:
    assert wanted_replicas({"busy": of_each(busy)}, DRAFTER_TARGETS) == wanted


def replay(loads: list[float], current: int = 1) -> list[int]:
    """Replicas after each second; the load, in verifiers, is shared evenly."""
    policy = LoadPolicy({"busy": TARGET_BUSY}, upscale_s=3, downscale_s=5)
    state: dict[str, Any] = {}
    counts = []
    for now_s, load in enumerate(loads):
        share = of_each([TARGET_BUSY * load / current] * current)
        current, state = policy.decide(current, {"busy": share}, state, float(now_s))
        counts.append(current)
    return counts


def test_a_need_must_last() -> None:
    assert replay([3] * 6) == [1, 1, 1, 3, 3, 3]
    assert replay([3, 3, 0.5, 3, 3, 0.5]) == [1] * 6


def test_one_at_a_time_on_the_way_down() -> None:
    assert replay([0.5] * 13, current=3) == [3] * 5 + [2] * 5 + [1] * 3


def test_steady_load_changes_nothing() -> None:
    assert set(replay([2.0] * 20, current=2)) == {2}


def test_without_reports_of_every_signal_nothing_changes() -> None:
    policy = LoadPolicy(VERIFIER_TARGETS, 0, 0)
    for busy in ({}, {"0": 2.0}):
        assert policy.decide(2, {"busy": busy, "kv": {}}, {}, 0.0)[0] == 2


def test_serves_context_is_read_for_the_replicas_that_run() -> None:
    def points(*values: float) -> list[SimpleNamespace]:
        return [SimpleNamespace(value=value) for value in values]

    context = SimpleNamespace(
        target_num_replicas=1, policy_state=None, running_replicas=["a"],
        raw_metrics={"busy": {"a": points(0.1, 1.3), "gone": points(9.0)}},
    )  # fmt: skip
    assert LoadPolicy(DRAFTER_TARGETS, 0, 0)(context)[0] == 3


def test_the_share_of_time_at_work_is_that_since_the_last_report() -> None:
    share = BusyShare(now_s=100.0)
    assert share.since_last(2.0, 104.0) == 0.5
    assert share.since_last(2.0, 105.0) == 0.0
    assert share.since_last(9.0, 106.0) == 1.0
    assert share.since_last(0.25, 107.0) == 0.25, "another worker took over"
    assert share.since_last(0.5, 107.0) == 0.0, "asked twice at once"
