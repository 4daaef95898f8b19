"""`whiflash demo`: agent sessions with and without drafting, and the same text."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

from whiflash.chat.format import ChatFormat
from whiflash.cli import options
from whiflash.cli.demo.pairs import PassResult, PassRunner
from whiflash.cli.demo.passes import FIRST_PASS, SECOND_PASS
from whiflash.cli.demo.show import DemoScreen

PASSES = (
    ("first fillings, store empty", FIRST_PASS),
    ("other fillings, store warm", SECOND_PASS),
)


def demo(
    model: options.Model = None,
    drafter: options.Drafter = None,
    policy: options.Policy = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> int:
    """Run agent sessions on real tools, drafting and plain, and compare; exit 1 unless the text
    is the same."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, policy=policy, memory=memory,
        dtype=dtype, device=device, chat_template=chat_template,
    )  # fmt: skip
    from whiflash.engine.engine import Engine

    console = Console(quiet=as_json, highlight=False)
    screen = DemoScreen(console)
    console.print("loading the model (the first start fetches and converts it) ...")
    with Engine(settings) as engine:
        chat = ChatFormat.for_model(engine.model_folder, engine.model_name, settings.chat_template)
        target = engine.plan()["target"]
        console.print(
            f"{target['name']}: {target['dtype']} on {target['device']}, "
            f"row arithmetic {target['exactness']}"
        )
        screen.legend()
        results = _run(PassRunner(engine, chat, screen.step), screen)
    screen.table(results)
    is_same = all(result.is_same_text for result in results)
    if as_json:
        typer.echo(json.dumps({"passes": [_record(r) for r in results], "same_text": is_same}))
    else:
        console.print(f"same text: {'yes' if is_same else 'no'}")
    return 0 if is_same else 1


def _run(runner: PassRunner, screen: DemoScreen) -> list[PassResult]:
    results: list[PassResult] = []
    for name, scenarios in PASSES:
        screen.heading(name)
        results.append(runner.run(name, scenarios))
    return results


def _record(result: PassResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "tokens": result.num_tokens,
        "rounds": result.num_rounds,
        "arms": {
            arm: {
                "rounds": usage.rounds,
                "emitted": usage.emitted,
                "accepted": usage.accepted,
                "accepted_length": round(usage.accepted_length, 3),
            }
            for arm, usage in result.arms().items()
        },
        "decode_ms": round(result.decode_ms(True), 1),
        "twin_decode_ms": round(result.decode_ms(False), 1),
        "ratio": round(result.ratio, 3),
        "tool_errors": result.num_errors,
        "same_text": result.is_same_text,
    }
