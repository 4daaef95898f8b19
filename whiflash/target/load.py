"""Loading a target: find it, refuse what cannot be exact, build it, prove it, measure it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from whiflash.config import read_environment
from whiflash.core.errors import ConfigError
from whiflash.models.files import ModelFiles
from whiflash.models.sources import resolve
from whiflash.models.tokenizer import HFTokenizer
from whiflash.target import curve, exactness
from whiflash.target.assembly import (
    PLAIN,
    ModelReader,
    TargetSettings,
    build_target,
    fix_longrope,
)
from whiflash.target.choice import Choice, candidates, choose, settle_min_rows
from whiflash.target.description import describe
from whiflash.target.eligibility import read_config
from whiflash.target.measured import (
    Measurement,
    measurement_path,
    read_measurement,
    write_measurement,
)
from whiflash.target.memory import available_bytes, require_weights_fit
from whiflash.target.probe_text import probe_ids
from whiflash.target.self_test import plain_logits, require_close, require_equal_to_eager
from whiflash.target.target import LocalTarget

# Enough layers to rank dtypes; a model of any size is then measured in seconds.
_TRIAL_LAYERS = 8
_SLOW_OMP = {"OMP_WAIT_POLICY": "passive", "OMP_PROC_BIND": "true"}


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A proven and measured target, its tokenizer, and where it was read from."""

    target: LocalTarget
    tokenizer: HFTokenizer
    path: Path


@dataclass(frozen=True, slots=True)
class _Source:
    """What is known before any weight is read."""

    name: str
    files: ModelFiles
    config: PreTrainedConfig
    tokenizer: HFTokenizer
    reader: ModelReader
    context_limit: int
    fingerprint: str
    text_ids: Sequence[int]


def load_target(
    name: str,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    context_limit: int | None = None,
    attention: str = "auto",
    offline: bool = False,
    free_bytes: int | None = None,
) -> LoadedTarget:
    """Loads a built-in, a folder, a GGUF file or a hub name as a target.

    dtype and attention "auto" are chosen by measurement, which is kept for the next start.
    context_limit: most tokens of a sequence, default the model's own. free_bytes: memory that
    the weights may take, default what the device has free.
    Raises ModelError (not found, damaged), UnsupportedModelError (refused, self-test failed) or
    ConfigError (a wrong option), each in one line.
    """
    _set_threads()
    _require_device(device)
    path = resolve(name, offline=offline)
    source = _read_source(name, path, device, context_limit)
    options = candidates(dtype, _stored_dtype(source.config), device, attention)
    free = available_bytes(device) if free_bytes is None else free_bytes
    smallest = min((option.torch_dtype for option in options), key=lambda kind: kind.itemsize)
    kind = torch.float32 if source.files.gguf_name else smallest  # GGUF is decoded as float32
    require_weights_fit(source.files.num_parameters(), kind, device, free)
    target = _build(source, options, [dtype, device, attention])
    return LoadedTarget(target, source.tokenizer, path)


def _set_threads() -> None:
    asked = read_environment("WHIFLASH_THREADS")
    if asked is None:
        return
    if not asked.isdigit() or int(asked) < 1:
        raise ConfigError(f"WHIFLASH_THREADS must be a positive count, got {asked!r}")
    torch.set_num_threads(int(asked))


def _require_device(device: str) -> None:
    if device == "cpu":
        return
    if not device.startswith("cuda"):
        raise ConfigError(f"device {device!r} is unknown; take cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise ConfigError(f"device {device} is asked for, but torch sees no GPU; take cpu")
    index = torch.device(device).index or 0
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device {device} is not there: {torch.cuda.device_count()} GPUs")


def _read_source(name: str, path: Path, device: str, context_limit: int | None) -> _Source:
    files = ModelFiles.at(path)
    config = read_config(files)
    tokenizer = HFTokenizer.load(files.folder, files.gguf_name)
    num_ids = max(curve.PROBE_TOKENS, exactness.PROBE_TOKENS)
    return _Source(
        name=name,
        files=files,
        config=config,
        tokenizer=tokenizer,
        reader=ModelReader(files, config, device),
        context_limit=_context_limit(config, context_limit),
        fingerprint=files.fingerprint(),
        text_ids=probe_ids(tokenizer, config.vocab_size, num_ids),
    )


def _context_limit(config: PreTrainedConfig, asked: int | None) -> int:
    own = int(getattr(config, "max_position_embeddings", 0) or 0)
    if asked is not None and own and asked > own:
        raise ConfigError(f"context_limit {asked} exceeds the {own} tokens the model was made for")
    if asked is None and not own:
        raise ConfigError("the model states no context length; give context_limit")
    return asked or own


def _stored_dtype(config: PreTrainedConfig) -> torch.dtype:
    stored = getattr(config, "dtype", None)
    return stored if isinstance(stored, torch.dtype) else torch.float32


def _build(source: _Source, options: list[TargetSettings], asked: list[str]) -> LocalTarget:
    kept = measurement_path(source.fingerprint, *asked)
    earlier = read_measurement(kept)
    choice = Choice(earlier.settings, earlier.reason) if earlier else _choose(source, options)
    model, rope_note = _read(source, choice.settings)
    target = _proven(source, model, choice.settings, is_proven=earlier is not None)
    measurement = _measure(source, target, choice, earlier)
    kept_note = None if measurement is earlier else write_measurement(kept, measurement)
    rounding = _rounding_note(source, measurement.settings)
    notes = (
        choice.reason,
        rounding,
        rope_note,
        _failed_note(measurement),
        kept_note,
        *_omp_notes(),
    )
    target = LocalTarget(target.runner, target.backend, measurement.settings.min_rows)
    info = describe(
        target,
        source.tokenizer,
        measurement,
        name=source.name,
        context_limit=source.context_limit,
        fingerprint=source.fingerprint,
        notes=tuple(note for note in notes if note),
    )
    target.attach(info, measurement.curve)
    return target


def _choose(source: _Source, options: list[TargetSettings]) -> Choice:
    if len(options) == 1:
        return Choice(options[0], "")

    def build(settings: TargetSettings) -> LocalTarget:
        model, _ = _read(source, settings, _TRIAL_LAYERS)
        return build_target(model, settings)

    return choose(options, build, source.text_ids)


def _read(
    source: _Source, settings: TargetSettings, max_layers: int | None = None
) -> tuple[PreTrainedModel, str | None]:
    """The plain model with its rotations fixed, and a note if that was a choice."""
    model = source.reader.read(settings.torch_dtype, max_layers)
    return model, fix_longrope(model, source.context_limit)


def _proven(
    source: _Source, model: PreTrainedModel, settings: TargetSettings, *, is_proven: bool
) -> LocalTarget:
    """The target, after the self-test. `is_proven`: this code, these weights and this machine have
    passed the comparison with eager before; the finished target is compared every time."""
    expected = plain_logits(model, source.text_ids)
    if not is_proven:
        wide = replace(settings, linears=PLAIN)
        require_equal_to_eager(model, source.text_ids, lambda piece: build_target(piece, wide))
    target = build_target(model, settings)
    require_close(target, source.text_ids, expected)
    return target


def _measure(
    source: _Source, target: LocalTarget, choice: Choice, earlier: Measurement | None
) -> Measurement:
    """The earlier measurement if a cheap check confirms it, else a new one."""
    ids = source.text_ids
    if earlier is not None and _still_holds(earlier, target, ids):
        return earlier
    settings, target, is_bitwise = settle_min_rows(choice.settings, target, ids)
    # What failed the quick checks is epsilon already; what passed them needs only the others.
    found = exactness.find_exactness(target, ids, quick=not is_bitwise, thorough=is_bitwise)
    costs = curve.measure_curve(target, ids)
    return Measurement(settings, choice.reason, found.verdict, found.failed, costs)


def _still_holds(earlier: Measurement, target: LocalTarget, ids: Sequence[int]) -> bool:
    if earlier.exactness == exactness.BITWISE:
        quick = exactness.find_exactness(target, ids, thorough=False)
        if quick.verdict != exactness.BITWISE:
            return False
    return curve.agrees(earlier.curve, target, ids)


def _rounding_note(source: _Source, settings: TargetSettings) -> str | None:
    stored = _stored_dtype(source.config)
    if settings.torch_dtype.itemsize >= stored.itemsize:
        return None
    return f"weights stored as {str(stored).removeprefix('torch.')} are rounded to {settings.dtype}"


def _failed_note(measurement: Measurement) -> str | None:
    if not measurement.failed:
        return None
    return f"not bitwise on this machine: {', '.join(measurement.failed)}"


def _omp_notes() -> list[str]:
    return [
        f"{name}={value} makes a forward up to 1.8 times slower; unset it"
        for name, value in _SLOW_OMP.items()
        if os.environ.get(name, "").lower() == value
    ]
