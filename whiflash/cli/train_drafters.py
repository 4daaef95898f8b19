"""`whiflash train eagle3` and `whiflash train dflash`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options, train_options
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.training.clock import TimeLimit
    from whiflash.training.drafters.run import DrafterTraining, MethodSettings
    from whiflash.training.drafters.trainer import StepReport, StepSettings

Out = Annotated[
    Path | None, typer.Option("--out", help="folder of state and checkpoint [WORK_DIR/ARM]")
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="steps in all, over all sittings")]
BatchTokens = Annotated[int, typer.Option("--batch-tokens", min=1, help="answer tokens a step")]
Rate = Annotated[float, typer.Option("--rate", min=0, help="peak of the learning rate")]
Texts = Annotated[int | None, typer.Option("--texts", min=1, help="only the first texts [all]")]
Vocab = Annotated[int, typer.Option("--vocab-size", min=1, help="most frequent ids")]
Products = Annotated[str, typer.Option("--products", help="dtype of products: bfloat16, float32")]
Init = Annotated[
    Path | None, typer.Option("--init", help="begin with the weights of this checkpoint folder, of "
                              "the same shape")
]  # fmt: skip
Quick = Annotated[bool, typer.Option("--quick", help="a short run on few texts, to see it work")]

_QUICK_STEPS, _QUICK_PROMPTS, _QUICK_TOKENS, _QUICK_TEXTS = 30, 192, 64, 24


def eagle3(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    out: Out = None,
    init: Init = None,
    steps: Steps = 3000,
    batch_tokens: BatchTokens = 2048,
    rate: Rate = 1e-3,
    texts: Texts = None,
    vocab_size: Vocab = 8192,
    unroll: Annotated[int, typer.Option("--unroll", min=3, help="steps of its own features")] = 4,
    depth: Annotated[int, typer.Option("--depth", min=1, help="chain that is measured")] = 6,
    boundaries: train_options.Boundaries = None,
    products: Products = "bfloat16",
    quick: Quick = False,
    seed: train_options.Seed = 0,
    max_minutes: train_options.MaxMinutes = None,
    chat: train_options.Chat = True,
    dtype: options.DType = None,
    device: options.Device = None,
) -> None:
    """Train an EAGLE-3 head on the text in WORK_DIR (`whiflash train data` writes it)."""
    from whiflash.training.drafters.run import Eagle3Settings

    job = _Job(work_dir, out or work_dir / "eagle3", model, dtype, device or "cpu", chat, quick,
               boundaries, texts, max_minutes, seed, init)  # fmt: skip
    _train(job, Eagle3Settings(vocab_size, unroll, depth),
           _steps(steps, batch_tokens, rate, products, seed, quick))  # fmt: skip


def dflash(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    out: Out = None,
    init: Init = None,
    steps: Steps = 3000,
    batch_tokens: BatchTokens = 2048,
    rate: Rate = 1e-3,
    texts: Texts = None,
    vocab_size: Vocab = 8192,
    layers: Annotated[int, typer.Option("--layers", min=1, help="of the drafter")] = 2,
    block: Annotated[int, typer.Option("--block", min=2, help="slots, the root's included")] = 8,
    mask_id: Annotated[int | None, typer.Option("--mask-id", min=0, help="an unused id")] = None,
    boundaries: train_options.Boundaries = None,
    products: Products = "bfloat16",
    quick: Quick = False,
    seed: train_options.Seed = 0,
    max_minutes: train_options.MaxMinutes = None,
    chat: train_options.Chat = True,
    dtype: options.DType = None,
    device: options.Device = None,
) -> None:
    """Train a DFlash block drafter on the text in WORK_DIR (`whiflash train data` writes it)."""
    from whiflash.training.drafters.run import DFlashSettings

    job = _Job(work_dir, out or work_dir / "dflash", model, dtype, device or "cpu", chat, quick,
               boundaries, texts, max_minutes, seed, init)  # fmt: skip
    _train(job, DFlashSettings(vocab_size, layers, block, mask_id),
           _steps(steps, batch_tokens, rate, products, seed, quick))  # fmt: skip


class _Job:
    """Where a training works, on what, for how long."""

    def __init__(
        self,
        work_dir: Path,
        out: Path,
        model: str | None,
        dtype: str | None,
        device: str,
        chat: bool,
        is_quick: bool,
        boundaries: str | None,
        num_texts: int | None,
        max_minutes: float | None,
        seed: int,
        init: Path | None,
    ) -> None:
        from whiflash.models.draft.boundaries import parse_boundaries
        from whiflash.training.clock import TimeLimit

        self.work_dir, self.out, self.init = work_dir, out, init
        self.model, self.dtype, self.device = model, dtype, device
        self.chat, self.is_quick, self.seed = chat, is_quick, seed
        self.boundaries = parse_boundaries(boundaries) if boundaries else None
        self.num_texts = num_texts
        self.limit: TimeLimit = TimeLimit(max_minutes)


def _steps(
    steps: int, batch_tokens: int, rate: float, products: str, seed: int, is_quick: bool
) -> StepSettings:
    from whiflash.training.drafters.trainer import StepSettings

    if products not in ("bfloat16", "float32"):
        raise ConfigError(f"--products {products} is unknown; take bfloat16 or float32")
    count = min(steps, _QUICK_STEPS) if is_quick else steps
    return StepSettings(count, batch_tokens, rate, seed=seed, dtype=products)


def _train(job: _Job, method: MethodSettings, steps: StepSettings) -> None:
    from whiflash.cli.train_features import make_features
    from whiflash.training.files import only_user

    if job.is_quick:
        _quick_text(job)
    with only_user(job.out):
        if not make_features(
            job.work_dir, job.model, job.dtype, job.device, job.boundaries, job.limit
        ):
            typer.echo("time is over; run the command again to go on")
            return
        _run_steps(job, method, steps)


def _quick_text(job: _Job) -> None:
    """A little text, where there is none."""
    from whiflash.cli.train_data import data
    from whiflash.training.data.generations import FOLDER

    if not (job.work_dir / FOLDER).is_dir():
        data(job.work_dir, job.model, _QUICK_PROMPTS, _QUICK_TOKENS, seed=job.seed,
             max_minutes=job.limit.left_s / 120, chat=job.chat, dtype=job.dtype,
             device=job.device)  # fmt: skip


def _run_steps(job: _Job, method: MethodSettings, steps: StepSettings) -> None:
    from whiflash.training.drafters.run import DrafterTraining
    from whiflash.training.progress import StageBar

    training = DrafterTraining(job.work_dir, job.out, method, steps, job.device, job.num_texts,
                               job.init)  # fmt: skip
    done, started, tokens = training.trainer.step, time.monotonic(), 0
    with StageBar("steps", steps.num_steps, done) as bar:

        def stepped(report: StepReport) -> None:
            nonlocal tokens
            tokens += report.tokens
            speed = tokens / (time.monotonic() - started)
            bar.step(f"loss {report.loss:.3f}, {speed:.0f} tokens/s")

        is_complete = training.run(job.limit, stepped)
    _tell(training, is_complete, _QUICK_TEXTS if job.is_quick else None)


def _tell(training: DrafterTraining, is_complete: bool, max_texts: int | None) -> None:
    folder, table = training.export(max_texts)
    figure: dict[str, Any] = table["acceptance"]["all"]
    state = "complete" if is_complete else "time is over; run the command again to go on"
    typer.echo(f"{table['steps']} steps, {table['tokens_seen']} tokens: {state}")
    typer.echo(f"held-out accepted length {figure['accepted_length']:.2f}, by position "
               f"{json.dumps(figure['positions'])}")  # fmt: skip
    typer.echo(f"wrote {folder}; use it with --drafter {table['arm']}:{folder}")
