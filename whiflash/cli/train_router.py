"""`whiflash train router`: heads for --policy goodput, a network for --policy neural."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options, train_options
from whiflash.cli.train_router_fit import Fit
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whiflash.config import EngineConfig
    from whiflash.training.clock import TimeLimit
    from whiflash.training.data.generations import Generation
    from whiflash.training.router.survey import Survey

Out = Annotated[
    Path | None, typer.Option("--out", help="router file; its card lies beside it [WORK_DIR/router/"
                              "router.safetensors]")
]  # fmt: skip
Positive = Annotated[
    str | None, typer.Option("--positive", help="for neural: arm above the threshold [eagle3]")
]
Negative = Annotated[
    str | None, typer.Option("--negative", help="for neural: the other [dflash or ddtree]")
]
Texts = Annotated[int, typer.Option("--texts", min=1, help="texts of the data that are logged")]
Width = Annotated[int, typer.Option("--width", min=1, help="of the inner layer of neural")]
HeadWidth = Annotated[int, typer.Option("--head-width", min=1, help="of that of the heads")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="texts at a time")]


def router(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    drafter: options.Drafter = None,
    out: Out = None,
    positive: Positive = None,
    negative: Negative = None,
    texts: Texts = 400,
    width: Width = 512,
    head_width: HeadWidth = 64,
    batch: Batch = 8,
    seed: train_options.Seed = 0,
    max_minutes: train_options.MaxMinutes = None,
    config: options.Config = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
) -> None:
    """Train the router of a target and its drafters, trained or published: log what all propose
    along the text in WORK_DIR, then fit a head per arm for --policy goodput, and, where there are
    an autoregressive and a block drafter, the network of --policy neural."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, memory=memory, dtype=dtype, device=device,
        max_batch=batch,
    )  # fmt: skip
    named = _named(settings)
    pair = _pair(named, positive, negative)
    from whiflash.training.clock import TimeLimit
    from whiflash.training.files import only_user
    from whiflash.training.router.hidden import FOLDER
    from whiflash.training.router.texts import router_texts

    limit = TimeLimit(max_minutes)
    folder = work_dir / FOLDER
    with only_user(folder):
        chosen = list(router_texts(work_dir, texts))
        survey, is_complete = _survey(work_dir, folder, settings, chosen, limit)
        if not is_complete or not _hidden(work_dir, settings, chosen, limit):
            typer.echo("time is over; run the command again to go on")
            return
        fit = Fit(work_dir, survey, named, pair, out or folder / "router.safetensors", limit)
        fit.run(width, head_width, seed)


def _named(settings: EngineConfig) -> list[str]:
    from whiflash.drafters.registry import parse_specs

    return [spec.kind for spec in parse_specs(settings.arms)]


def _pair(named: list[str], positive: str | None, negative: str | None) -> tuple[str, str] | None:
    """The arms of the neural router; None where no two were asked for and the usual ones are not
    there. Raises ConfigError for one that is asked for and not there."""
    from whiflash.routing.paradigms import BLOCK, first_of

    pair = positive or "eagle3", negative or first_of(BLOCK, named) or BLOCK[0]
    missing = [arm for arm in pair if arm not in named]
    if not missing:
        return pair
    if positive is None and negative is None:
        return None
    raise ConfigError(f"a neural router chooses between {pair[0]} and {pair[1]}; add --drafter "
                      f"{missing[0]}:FOLDER, or name others with --positive and "
                      "--negative")  # fmt: skip


def _survey(
    work_dir: Path,
    folder: Path,
    settings: EngineConfig,
    chosen: Sequence[Generation],
    limit: TimeLimit,
) -> tuple[Survey, bool]:
    """Logs what is missing; whether all is there."""
    from whiflash.training.data.generations import generations_target, text_seed
    from whiflash.training.data.prompts import training_prompt
    from whiflash.training.progress import StageBar
    from whiflash.training.router.survey import Survey

    data_seed = text_seed(work_dir)
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


def _hidden(
    work_dir: Path, settings: EngineConfig, chosen: Sequence[Generation], limit: TimeLimit
) -> bool:
    """Makes the hidden states that no features have; whether all is there. The target is loaded
    only if there is something to do."""
    from whiflash.target.load import load_target
    from whiflash.training.data.generations import generations_target
    from whiflash.training.features.facts import require_target
    from whiflash.training.progress import StageBar
    from whiflash.training.router.hidden import make_hidden, missing_hidden

    missing = missing_hidden(work_dir, chosen)
    if not missing:
        return True
    loaded = load_target(settings.model, dtype=settings.dtype, device=settings.device)
    require_target(loaded.target.info.fingerprint, generations_target(work_dir), work_dir)
    with StageBar("hidden states", len(missing)) as bar:
        return make_hidden(loaded, work_dir, missing, limit, lambda count: bar.step(count=count))
