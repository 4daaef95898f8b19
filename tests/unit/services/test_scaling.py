"""How many verifiers there should be."""

from __future__ import annotations

from typing import Any

import pytest

from services.scaling import TARGET_BUSY, VerifierPolicy, wanted_replicas


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
def test_as_many_as_bring_the_load_to_its_target(
    busy: list[float], kv: list[float], wanted: int
) -> None:
    assert wanted_replicas(dict(enumerate(busy)), dict(enumerate(kv))) == wanted  # type: ignore[arg-type]


def replay(loads: list[float], current: int = 1) -> list[int]:
    """Replicas after each second; the load, in verifiers, is shared evenly."""
    policy, state, counts = VerifierPolicy(upscale_s=3, downscale_s=5), {}, []
    for now_s, load in enumerate(loads):
        share = {str(n): TARGET_BUSY * load / current for n in range(current)}
        current, state = policy.decide(current, share, {}, state, float(now_s))
        counts.append(current)
    return counts


def test_a_need_must_last() -> None:
    assert replay([3] * 6) == [1, 1, 1, 3, 3, 3]
    assert replay([3, 3, 0.5, 3, 3, 0.5]) == [1] * 6


def test_one_at_a_time_on_the_way_down() -> None:
    assert replay([0.5] * 13, current=3) == [3] * 5 + [2] * 5 + [1] * 3


def test_steady_load_changes_nothing() -> None:
    assert set(replay([2.0] * 20, current=2)) == {2}


def test_without_reports_nothing_changes() -> None:
    policy: Any = VerifierPolicy(0, 0)
    assert policy.decide(2, {}, {}, {}, 0.0)[0] == 2
