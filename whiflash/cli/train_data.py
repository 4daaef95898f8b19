"""`whiflash train data`: prompts, and what the target answers to them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from whiflash.cli import options, train_options

Prompts = Annotated[int, typer.Option("--prompts", min=1, help="how many, held-out ones included")]
MaxAnswer = Annotated[int, typer.Option("--max-tokens", min=1, help="most tokens of an answer")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="answers written at a time")]


def data(
    work_dir: train_options.WorkDir,
    model: options.Model = None,
    prompts: Prompts = 12_000,
    max_tokens: MaxAnswer = 256,
    batch: Batch = 32,
    seed: train_options.Seed = 0,
    max_minutes: train_options.MaxMinutes = None,
    chat: train_options.Chat = True,
    config: options.Config = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
) -> None:
    """Let the target answer the training prompts: half of them greedily, half at temperature 1."""
    settings = options.engine_config(
        config, model=model, memory=memory, dtype=dtype, device=device,
        chat_template=chat_template, max_batch=batch,
        drafters=["none"],  # a full batch leaves no room that a draft could use
    )  # fmt: skip
    from whiflash.engine.engine import Engine
    from whiflash.training.clock import TimeLimit
    from whiflash.training.data import generations as g
    from whiflash.training.files import only_user
    from whiflash.training.progress import StageBar

    limit = TimeLimit(max_minutes)
    with only_user(work_dir), Engine(settings) as engine:
        wanted = g.GenerationSettings(prompts, seed, max_tokens, chat)
        found = g.Generations(work_dir, wanted, engine.core.target.info.fingerprint)
        render = g.chat_render(engine) if chat else g.plain_render
        started, tokens = time.monotonic(), 0
        with StageBar("answers", prompts, found.num_done) as bar:

            def answered(_num_prompt: int, num_answer: int) -> None:
                nonlocal tokens
                tokens += num_answer
                bar.step(f"{tokens / (time.monotonic() - started):.0f} tokens/s")

            is_complete = found.run(engine, render, limit, answered)
    end = "complete" if is_complete else "time is over; run the command again to go on"
    typer.echo(f"{found.num_done} of {prompts} answers in {work_dir}: {end}")
