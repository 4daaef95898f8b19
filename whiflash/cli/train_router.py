"""`whiflash train router`: the network of --policy neural, from logged rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options, train_options
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.config import EngineConfig
    from whiflash.training.clock import TimeLimit
    from whiflash.training.router.survey import Survey

Out = Annotated[
    Path | None, typer.Option("--out", help="file for --policy neural:file=... [WORK_DIR/router/"
                              "router.safetensors]")
]  # fmt: skip
Positive = Annotated[str, typer.Option("--positive", help="arm that is taken above the threshold")]
Negative = Annotated[str | None, typer.Option("--negative", help="the other [dflash or ddtree]")]
Texts = Annotated[int, typer.Option("--texts", min=1, help="texts of the data that are logged")]
Width = Annotated[int, typer.Option("--width", min=1, help="of the inner layer")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="texts at a time")]


def router(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    drafter: options.Drafter = None,
    out: Out = None,
    positive: Positive = "eagle3",
    negative: Negative = None,
    texts: Texts = 400,
    width: Width = 512,
    batch: Batch = 8,
    seed: train_options.Seed = 0,
    max_minutes: train_options.MaxMinutes = None,
    config: options.Config = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
) -> None:
    """Train the neural router of a target and two drafters, trained or published: log what both
    propose along the text in WORK_DIR (it needs features), then fit the network."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, memory=memory, dtype=dtype, device=device,
        max_batch=batch,
    )  # fmt: skip
    arms = positive, negative or _block_arm(settings)
    _check_arms(settings, arms)
    from whiflash.training.clock import TimeLimit
    from whiflash.training.files import only_user

    limit = TimeLimit(max_minutes)
    folder = work_dir / "router"
    with only_user(folder):
        survey, is_complete = _survey(work_dir, folder, settings, texts, limit)
        if not is_complete:
            typer.echo("time is over; run the command again to go on")
            return
        _fit(work_dir, survey, arms, out or folder / "router.safetensors", width, seed, limit)


def _named(settings: EngineConfig) -> list[str]:
    from whiflash.drafters.registry import parse_specs

    return [spec.kind for spec in parse_specs(settings.arms)]


def _block_arm(settings: EngineConfig) -> str:
    from whiflash.routing.paradigms import BLOCK, first_of

    return first_of(BLOCK, _named(settings)) or BLOCK[0]


def _check_arms(settings: EngineConfig, arms: tuple[str, str]) -> None:
    missing = [arm for arm in arms if arm not in _named(settings)]
    if missing:
        raise ConfigError(f"a router chooses between {arms[0]} and {arms[1]}; add --drafter "
                          f"{missing[0]}:FOLDER, or name others with --positive and "
                          "--negative")  # fmt: skip


def _survey(
    work_dir: Path, folder: Path, settings: EngineConfig, num_texts: int, limit: TimeLimit
) -> tuple[Survey, bool]:
    """Logs what is missing; whether all is there."""
    from whiflash.training.data.generations import (
        FOLDER,
        generations_target,
        read_generations,
    )
    from whiflash.training.data.prompts import training_prompt
    from whiflash.training.files import read_settings
    from whiflash.training.progress import StageBar
    from whiflash.training.router.survey import Survey

    data_seed = int(read_settings(work_dir / FOLDER)["seed"])
    chosen = [text for text, _ in zip(read_generations(work_dir), range(num_texts), strict=False)]
    facts: dict[str, Any] = {
        "target": generations_target(work_dir),
        "drafters": list(settings.arms),
    }
    survey = Survey(folder, facts)
    with StageBar("logged texts", len(chosen), len(survey.done())) as bar:
        is_complete = survey.run(
            settings, chosen, lambda number: training_prompt(number, data_seed).seed, limit,
            bar.step,
        )  # fmt: skip
    if survey.num_differing:
        typer.echo(f"{survey.num_differing} texts did not come out again and are left out: this "
                   "target is not bitwise")  # fmt: skip
    return survey, is_complete


def _fit(
    work_dir: Path,
    survey: Survey,
    arms: tuple[str, str],
    out: Path,
    width: int,
    seed: int,
    limit: TimeLimit,
) -> None:
    import torch

    from whiflash.training.data.generations import generations_target
    from whiflash.training.data.prompts import HELD_OUT
    from whiflash.training.features.store import FeatureStore
    from whiflash.training.progress import StageBar
    from whiflash.training.provenance import provenance
    from whiflash.training.router.labels import router_labels
    from whiflash.training.router.network import NetworkSettings, train_router

    labels = router_labels(survey, FeatureStore(work_dir, torch.device("cpu")), *arms, HELD_OUT)
    settings = NetworkSettings(width=width, seed=seed)
    with StageBar("epochs", settings.max_epochs) as bar:
        file, report = train_router(
            labels, arms, generations_target(work_dir), settings, limit,
            lambda error: bar.step(f"held-out error {error:.4f}"),
        )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    file.write(out)
    told = {"arms": list(arms), **report.record(), "provenance": provenance()}
    out.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    typer.echo(f"explains {report.explained:.0%} of dAL on {report.held_out_roots} held-out roots")
    lengths = ", ".join(f"{name} {value:.2f}" for name, value in report.lengths.items())
    typer.echo(f"accepted length at every root: {lengths}")
    typer.echo(f"wrote {out}; use it with --policy neural:file={out}")
