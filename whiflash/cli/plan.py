"""`whiflash plan`: what would run here, and at what measured cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from whiflash.cli import options


def plan(
    model: options.Model = None,
    drafter: options.Drafter = None,
    policy: options.Policy = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
    config: options.Config = None,
    as_json: options.Json = False,
) -> None:
    """Print the resolved plan: target, arms, policy, limits, measured costs, cache folder."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, policy=policy, memory=memory,
        dtype=dtype, device=device, chat_template=chat_template,
    )  # fmt: skip
    from whiflash.engine.engine import Engine

    with Engine(settings) as engine:
        resolved = engine.plan()
    if as_json:
        typer.echo(json.dumps(resolved, indent=2))
    else:
        typer.echo("\n".join(plan_lines(resolved)))


def plan_lines(table: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The plan for a person: a line per value, tables indented."""
    width = max((len(str(key)) for key in table), default=0)
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}"
            yield from plan_lines(value, indent + "  ")
        else:
            yield f"{indent}{key!s:<{width}}  {_shown(value)}"


def _shown(value: object) -> str:
    if value is None or value == "" or value in ([], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(item) if not _is_pair(item) else _pair(item) for item in value)
    return str(value)


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _pair(value: Any) -> str:
    return f"{_shown(value[0])}: {_shown(value[1])}"
