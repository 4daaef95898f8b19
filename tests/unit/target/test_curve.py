"""The verify curve: sizes, medians, a time budget, and whether an earlier one still holds."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from whiflash.core.costs import CostCurve
from whiflash.target import curve
from whiflash.target.assembly import PLAIN, SDPA, TargetSettings, build_target
from whiflash.target.target import LocalTarget
from whiflash.testing.toy import toy_model

IDS = [3 + i % 50 for i in range(curve.PROBE_TOKENS)]


class Clock:
    """A time that only forwards move: each costs 10 ms and 1 ms per row."""

    def __init__(self, target: LocalTarget, factor: float = 1.0) -> None:
        self.now_s = 0.0
        self.factor = factor
        self.rows: list[tuple[int, int]] = []
        self._forward = target.forward
        target.forward = self.forward  # type: ignore[method-assign]

    def forward(self, segments):  # type: ignore[no-untyped-def]
        rows = sum(len(segment.token_ids) for segment in segments)
        self.rows.append((rows, sum(segment.num_logits for segment in segments)))
        self.now_s += self.factor * (0.010 + 0.001 * rows)
        return self._forward(segments)


@pytest.fixture
def target() -> LocalTarget:
    return build_target(toy_model(), TargetSettings("float64", SDPA, PLAIN))


@pytest.fixture
def clock(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(target)
    fake = SimpleNamespace(perf_counter=lambda: clock.now_s, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(curve, "time", fake)
    return clock


def test_curve_is_of_all_sizes(target: LocalTarget, clock: Clock) -> None:
    measured = curve.measure_curve(target, IDS)
    assert [count for count, _ in measured.points] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for count, ms in measured.points:
        assert ms == pytest.approx(10 + count)
    assert (64, 64) in clock.rows
    assert (256, 1) in clock.rows


def test_median_hides_one_slow_forward(target: LocalTarget, clock: Clock) -> None:
    plain, slow = clock.forward, itertools.count()

    def forward(segments):  # type: ignore[no-untyped-def]
        if next(slow) == 12:
            clock.now_s += 1.0
        return plain(segments)

    target.forward = forward  # type: ignore[method-assign]
    measured = curve.measure_curve(target, IDS)
    assert all(ms == pytest.approx(10 + count) for count, ms in measured.points)


def test_slow_machine_still_gets_every_size(target: LocalTarget, clock: Clock) -> None:
    clock.factor = 200.0
    measured = curve.measure_curve(target, IDS)
    assert len(measured.points) == 9
    assert len(clock.rows) < 25


def test_context_stays_as_it_is(target: LocalTarget, clock: Clock) -> None:
    """Every timed forward sees the same context: nothing of it is committed."""
    lengths = []
    original = target.forward

    def forward(segments):  # type: ignore[no-untyped-def]
        lengths.append(segments[0].cache.length)
        return original(segments)

    target.forward = forward  # type: ignore[method-assign]
    curve.measure_curve(target, IDS)
    assert set(lengths[1:]) == {curve.CONTEXT_TOKENS}


@pytest.mark.parametrize(
    ("factor", "holds"), [(1.0, True), (1.8, True), (0.6, True), (3.0, False), (0.3, False)]
)
def test_earlier_curve_is_checked_at_one_point(
    target: LocalTarget, clock: Clock, factor: float, holds: bool
) -> None:
    earlier = CostCurve(((1, 11.0), (8, 18.0), (64, 74.0)))
    clock.factor = factor
    assert curve.agrees(earlier, target, IDS) is holds
    assert {rows for rows, _ in clock.rows[1:]} == {8}


@pytest.mark.gpu
def test_curve_on_cuda() -> None:
    target = build_target(
        toy_model().to(torch.bfloat16).to("cuda"), TargetSettings("bfloat16", SDPA, PLAIN)
    )
    measured = curve.measure_curve(target, IDS)
    assert all(ms > 0 for _, ms in measured.points)
