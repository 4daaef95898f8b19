"""`whiflash generate`: one prompt, one answer."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options
from whiflash.cli.compare import compare
from whiflash.cli.prompts import prompt_ids, read_prompt
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine

Prompt = Annotated[str, typer.Option("--prompt", help="text, @FILE, or - for standard input")]
Chat = Annotated[bool, typer.Option("--chat", help="the prompt is a user's message")]
Compare = Annotated[
    bool, typer.Option("--compare", help="run the no-draft twin too; exit 1 unless same text")
]


def generate(
    prompt: Prompt,
    model: options.Model = None,
    drafter: options.Drafter = None,
    policy: options.Policy = None,
    chat: Chat = False,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    as_json: options.Json = False,
    compare_twin: Compare = False,
    config: options.Config = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
) -> int:
    """Generate text; it streams to standard output."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, policy=policy, memory=memory,
        dtype=dtype, device=device, chat_template=chat_template,
    )  # fmt: skip
    params = options.sampling_params(max_tokens, temperature, top_p, seed)
    text = read_prompt(prompt)
    from whiflash.engine.engine import Engine

    with Engine(settings) as engine:
        ids = prompt_ids(engine, text, chat)
        completion = _answer(engine, ids, params, is_quiet=as_json)
        shown = answer_record(completion)
        status = 0
        if compare_twin:
            seeded = dataclasses.replace(params, seed=completion.seed)
            comparison = compare(engine, ids, seeded)
            shown["compare"] = comparison.record()
            status = 0 if comparison.is_same_text else 1
            print("\n".join(comparison.lines()), file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False))
    return status


def _answer(engine: Engine, ids: list[int], params: SamplingParams, is_quiet: bool) -> Completion:
    if is_quiet:
        return engine.generate(ids, params).choices[0]
    ticket = engine.submit(GenerationRequest(tuple(ids), params))
    for delta in ticket.deltas():
        sys.stdout.write(delta.text)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return ticket.result().choices[0]


def answer_record(completion: Completion) -> dict[str, Any]:
    """What `--json` prints: text, token_ids, finish_reason, usage, seed, arms."""
    usage = dataclasses.asdict(completion.usage)
    arms = usage.pop("arms")
    for name, arm in completion.usage.arms.items():
        arms[name]["accepted_length"] = round(arm.accepted_length, 4)
    return {
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "finish_reason": str(completion.finish_reason),
        "usage": usage,
        "seed": completion.seed,
        "arms": arms,
    }
