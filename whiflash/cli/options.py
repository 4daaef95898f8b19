"""Flags that several verbs share, and the records they become."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams
from whiflash.core.places import STORE_SCHEMES

Model = Annotated[
    str | None, typer.Option("--model", help="built-in name, folder or hub name [smollm2-135m]")
]
Drafter = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help="an arm: retrieval, eagle3, dflash or ddtree, with :FOLDER where none is shipped "
        "(options behind it: ,tree=chain); repeat for several; `none` turns drafting off",
    ),
]
Policy = Annotated[
    str | None, typer.Option("--policy", help="who chooses, like entropy:tau=1.2 [goodput]")
]
Memory = Annotated[
    str | None, typer.Option("--memory", help="for the caches, as 4GiB [half of free]")
]
DType = Annotated[str | None, typer.Option("--dtype", help="auto, float32, bfloat16, float64")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N [cpu]")]
ChatTemplate = Annotated[
    Path | None, typer.Option("--chat-template", help="Jinja file instead of ours")
]
Store = Annotated[
    str | None,
    typer.Option("--store", help="trajectories: file (the user's data folder), a folder, memory"),
]
Redis = Annotated[
    str | None,
    typer.Option("--redis", help="redis://, rediss:// or unix:// URL that replicas share instead"),
]
NoEviction = Annotated[
    bool | None,
    typer.Option("--assume-noeviction", help="of a Redis that hides its maxmemory-policy"),
]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML or JSON file of options; flags win over it")
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="most tokens of the answer")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy")]
TopP = Annotated[float, typer.Option("--top-p", help="nucleus, 1 is off")]
Seed = Annotated[int | None, typer.Option("--seed", help="same seed, same text")]


def engine_config(config: Path | None, **flags: Any) -> EngineConfig:
    """The file (if any) with the given flags over it; a flag that is None was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    return EngineConfig.load(config, **given) if config else EngineConfig.of(**given)


def store_of(store: str | None, redis: str | None) -> str | None:
    """What the flags name; None if neither was given. Raises ConfigError."""
    if store is not None and redis is not None:
        raise ConfigError("--store and --redis exclude each other; name one place")
    if redis is not None and "://" not in redis:
        raise ConfigError(
            f"--redis {redis} is no URL; write redis://HOST:6379/0, or one of "
            f"{', '.join(f'{scheme}://' for scheme in STORE_SCHEMES[1:])}"
        )
    return redis if store is None else store


def sampling_params(
    max_tokens: int, temperature: float, top_p: float, seed: int | None
) -> SamplingParams:
    """Raises InvalidRequestError on a value out of range."""
    return SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
