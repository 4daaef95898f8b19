"""`whiflash train features`: what the target thought while it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whiflash.cli import options, train_options

if TYPE_CHECKING:
    from whiflash.training.clock import TimeLimit


def features(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    boundaries: train_options.Boundaries = None,
    max_minutes: train_options.MaxMinutes = None,
    dtype: options.DType = None,
    device: options.Device = None,
) -> None:
    """Run the target over its text in WORK_DIR once and keep taps and hidden states. `eagle3` and
    `dflash` do it by themselves; a router alone needs it too."""
    from whiflash.models.draft.boundaries import parse_boundaries
    from whiflash.training.clock import TimeLimit

    chosen = parse_boundaries(boundaries) if boundaries else None
    limit = TimeLimit(max_minutes)
    is_complete = make_features(work_dir, model, dtype, device or "cpu", chosen, limit)
    typer.echo("complete" if is_complete else "time is over; run the command again to go on")


def make_features(
    work_dir: Path,
    model: str | None,
    dtype: str | None,
    device: str,
    boundaries: tuple[int, ...] | None,
    limit: TimeLimit,
) -> bool:
    """Makes the features that are missing; False if time was over before. The target is loaded
    only if there is something to do."""
    from whiflash.target.load import load_target
    from whiflash.training.data.generations import generations_target, require_text
    from whiflash.training.features.extract import FOLDER, extract, pending_shards
    from whiflash.training.features.facts import require_target
    from whiflash.training.files import only_user
    from whiflash.training.progress import StageBar

    require_text(work_dir)
    target = generations_target(work_dir)
    with only_user(work_dir / FOLDER):
        pending = len(pending_shards(work_dir))
        if not pending:
            return True
        loaded = load_target(model or "smollm2-135m", dtype=dtype or "auto", device=device)
        require_target(loaded.target.info.fingerprint, target, work_dir)
        with StageBar("features", pending) as bar:
            return extract(loaded, boundaries, work_dir, limit,
                           lambda tokens: bar.step(f"{tokens} tokens"))  # fmt: skip
