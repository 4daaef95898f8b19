"""Which settings are taken: exactness first, then the measured time."""

from __future__ import annotations

import pytest

from whiflash.target import choice
from whiflash.target.assembly import TargetSettings

PACKED = TargetSettings("bfloat16", "kernel", "packed")
PLAIN = TargetSettings("float32", "kernel", "plain")
OTHER = TargetSettings("float32", "kernel", "packed")


def taken(
    monkeypatch: pytest.MonkeyPatch,
    times_ms: dict[TargetSettings, float],
    bitwise: set[TargetSettings],
) -> TargetSettings:
    """What `choose` takes if the checks and the clock say this."""
    monkeypatch.setattr(
        choice,
        "settle_min_rows",
        lambda settings, target, _ids: (settings, target, target in bitwise),
    )
    monkeypatch.setattr(
        choice, "_times", lambda targets, _ids: [(times_ms[t], times_ms[t]) for t in targets]
    )
    build = lambda settings: settings  # noqa: E731 - the settings stand for the target
    return choice.choose(list(times_ms), build, [1, 2, 3]).settings  # type: ignore[arg-type]


def test_a_busy_machine_cannot_drop_exactness(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {PACKED: 328.0, PLAIN: 40.0}
    assert taken(monkeypatch, times, {PACKED}) == PACKED


def test_the_fastest_bitwise_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {PACKED: 25.0, OTHER: 36.0, PLAIN: 20.0}
    assert taken(monkeypatch, times, {PACKED, OTHER}) == PACKED


def test_without_any_bitwise_settings_the_fastest_win(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken(monkeypatch, {PACKED: 25.0, PLAIN: 20.0}, set()) == PLAIN
