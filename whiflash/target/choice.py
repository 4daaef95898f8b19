"""Dtype and packing by measurement: the fastest candidate on this machine, bitwise ones first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from whiflash.models.linear import PACKED_DTYPES
from whiflash.target.assembly import PACKED, PLAIN, TargetSettings, attention_for
from whiflash.target.curve import time_forwards
from whiflash.target.exactness import BITWISE, find_exactness
from whiflash.target.target import LocalTarget

# Half the forwards of a drafting engine are small verifies, the others nearly single rows.
_TIMED_ROWS = (1, 8)
_TURNS, _REPEATS = 3, 2
# Rows a forward is padded to, smallest first: float32 kernels differ between one row and more.
_MIN_ROWS = (1, 2)


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings taken and the measured reason, for the plan."""

    settings: TargetSettings
    reason: str


@dataclass(frozen=True, slots=True)
class _Trial:
    settings: TargetSettings
    is_bitwise: bool
    times_ms: tuple[float, ...]

    @property
    def cost(self) -> float:
        return sum(self.times_ms)

    @property
    def text(self) -> str:
        times = "/".join(f"{ms:.1f}" for ms in self.times_ms)
        return f"{self.settings.label} {times} ms{'' if self.is_bitwise else ' (not bitwise)'}"


def candidates(
    asked_dtype: str, stored: torch.dtype, device: str, attention: str
) -> list[TargetSettings]:
    """Settings worth measuring, one if there is nothing to choose. Raises ConfigError."""
    if asked_dtype != "auto":
        dtypes = [asked_dtype]
    elif device != "cpu":
        dtypes = [_name(stored) if stored in (torch.bfloat16, torch.float16) else "bfloat16"]
    else:
        dtypes = ["float64"] if stored == torch.float64 else ["bfloat16", "float32"]
    found = []
    for name in dtypes:
        dtype = TargetSettings(name, "", "").torch_dtype
        kind = attention_for(attention, dtype, device)
        found += [TargetSettings(name, kind, linears) for linears in _linears(dtype, device)]
    return found


def _linears(dtype: torch.dtype, device: str) -> Sequence[str]:
    if device != "cpu" or not _is_packable(dtype):
        return (PLAIN,)
    return (PACKED,) if dtype == torch.bfloat16 else (PACKED, PLAIN)


def _is_packable(dtype: torch.dtype) -> bool:
    has_onednn = torch.backends.mkldnn.is_available()
    if dtype not in PACKED_DTYPES or not has_onednn:
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def choose(
    options: Sequence[TargetSettings],
    build: Callable[[TargetSettings], LocalTarget],
    text_ids: Sequence[int],
) -> Choice:
    """Builds, checks and times every option and takes the fastest bitwise one; the fastest of all
    only where none is bitwise. Times never decide about exactness: on a busy machine they are
    noise."""
    built = [settle_min_rows(settings, build(settings), text_ids) for settings in options]
    times = _times([target for _, target, _ in built], text_ids)
    trials = [
        _Trial(settings, is_bitwise, cost)
        for (settings, _, is_bitwise), cost in zip(built, times, strict=True)
    ]
    bitwise = [trial for trial in trials if trial.is_bitwise]
    taken = min(bitwise or trials, key=lambda trial: trial.cost)
    rows = " and ".join(str(count) for count in _TIMED_ROWS)
    reason = f"measured at {rows} rows: " + ", ".join(trial.text for trial in trials)
    return Choice(taken.settings, reason)


def _times(targets: Sequence[LocalTarget], text_ids: Sequence[int]) -> list[tuple[float, ...]]:
    """Milliseconds per target and row count: the least of several turns, which other work on the
    machine disturbs least. Targets take turns, so that drift is shared."""
    turns = [
        [time_forwards(target, text_ids, _TIMED_ROWS, _REPEATS) for target in targets]
        for _ in range(_TURNS)
    ]
    return [
        tuple(min(turn[i][count] for turn in turns) for count in _TIMED_ROWS)
        for i in range(len(targets))
    ]


def settle_min_rows(
    settings: TargetSettings, target: LocalTarget, text_ids: Sequence[int]
) -> tuple[TargetSettings, LocalTarget, bool]:
    """The least padding under which the quick exactness checks hold, and whether they do."""
    for min_rows in _MIN_ROWS:
        padded = LocalTarget(target.runner, target.backend, min_rows)
        if find_exactness(padded, text_ids, thorough=False).verdict == BITWISE:
            return replace(settings, min_rows=min_rows), padded, True
    return settings, target, False
