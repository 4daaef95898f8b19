"""`whiflash calibrate entropy`: tau of the entropy policy, measured on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options
from whiflash.cli.calibration_data import MAX_PROMPTS, MIN_PROMPTS, CategoryPrompts, read_categories
from whiflash.cli.prompts import prompt_ids
from whiflash.core.errors import ConfigError
from whiflash.core.params import SamplingParams

if TYPE_CHECKING:
    from whiflash.config import EngineConfig
    from whiflash.routing.replay.log import LoggedRun
    from whiflash.routing.tau_file import TauFile

app = typer.Typer(name="calibrate", help="Measure what a policy needs.", no_args_is_help=True)

Data = Annotated[
    list[Path],
    typer.Option("--data", help="JSON lines of `prompt` and `category`; repeat for several files"),
]
Out = Annotated[Path, typer.Option("--out", help="file that --policy entropy:file=... reads")]
Above = Annotated[str, typer.Option("--above", help="arm where entropy is above tau")]
Below = Annotated[str | None, typer.Option("--below", help="arm elsewhere [dflash or ddtree]")]
Most = Annotated[int, typer.Option("--max-prompts", min=1, help="prompts per category")]
Chat = Annotated[bool, typer.Option("--chat/--no-chat", help="prompts are a user's messages")]


@app.callback()
def _root() -> None:
    """Measure what a policy needs."""


@app.command()
def entropy(
    data: Data,
    out: Out,
    model: options.Model = None,
    drafter: options.Drafter = None,
    above: Above = "eagle3",
    below: Below = None,
    max_prompts: Most = MAX_PROMPTS,
    max_tokens: options.MaxTokens = 256,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    chat: Chat = True,
    config: options.Config = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
) -> None:
    """Choose tau for --policy entropy: run prompts once with every arm proposing at every root,
    then take the threshold with the highest goodput along those texts."""
    settings = options.engine_config(
        config, model=model, drafters=drafter, memory=memory, dtype=dtype, device=device,
        chat_template=chat_template,
    )  # fmt: skip
    arms = above, below if below is not None else _block_arm(settings)
    _check_arms(settings, arms)
    categories = read_categories(data, max_prompts)
    params = options.sampling_params(max_tokens, temperature, top_p, seed)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "rounds.zst"
        numbers = _survey(settings, log, categories, params, chat)
        found = _search(log, arms, numbers)
    found.write(out)
    typer.echo("\n".join(_summary(found, categories, out)))


def _named(settings: EngineConfig) -> list[str]:
    from whiflash.drafters.registry import parse_specs

    return [spec.kind for spec in parse_specs(settings.arms)]


def _block_arm(settings: EngineConfig) -> str:
    from whiflash.routing.paradigms import BLOCK, first_of

    return first_of(BLOCK, _named(settings)) or BLOCK[0]


def _check_arms(settings: EngineConfig, arms: tuple[str, str]) -> None:
    named = _named(settings)
    for arm in arms:
        if arm not in named:
            raise ConfigError(f"calibration compares {arms[0]} with {arms[1]}, but --drafter gives "
                              f"{', '.join(named) or 'none'}; add --drafter {arm}:FOLDER, or name "
                              "other arms with --above and --below")  # fmt: skip
    if arms[0] == arms[1]:
        raise ConfigError(f"--above and --below are both {arms[0]}; calibration compares two arms")


def _survey(
    settings: EngineConfig,
    log: Path,
    categories: Sequence[CategoryPrompts],
    params: SamplingParams,
    is_chat: bool,
) -> dict[str, list[int]]:
    """Runs every prompt alone; numbers of the turns by category."""
    from whiflash.engine.engine import Engine

    numbers: dict[str, list[int]] = {}
    count = 0
    with Engine(settings, policy="survey", round_log=log) as engine:
        for category in categories:
            for prompt in category.prompts:
                ids = prompt_ids(engine, prompt, is_chat)
                answer = engine.generate(ids, params).choices[0]
                if len(answer.token_ids) > 1:  # the first token is the prompt's, not a round's
                    numbers.setdefault(category.name, []).append(count)
                    count += 1
    return numbers


def _search(log: Path, arms: tuple[str, str], numbers: Mapping[str, list[int]]) -> TauFile:
    from whiflash.obs.round_log import read_rounds
    from whiflash.routing.replay.log import logged_runs
    from whiflash.routing.replay.tau import TauSearch, best
    from whiflash.routing.tau_file import TauFile

    runs = logged_runs(read_rounds(log))
    search = TauSearch(runs, *arms)
    scores = search.scores()
    chosen = best(scores)
    provenance: dict[str, Any] = {
        **_provenance(runs),
        "roots": len(search.entropies),
        "censored_roots": search.num_censored,
        "median_entropy": round(float(sorted(search.entropies)[len(search.entropies) // 2]), 4),
        "roots_above_tau": round(float((search.entropies > chosen.tau).mean()), 4),
        "tokens_per_s": {
            "tau": round(chosen.tokens_per_s, 2),
            arms[0]: round(scores[0].tokens_per_s, 2),
            arms[1]: round(scores[-1].tokens_per_s, 2),
        },
        "prompts": {name: len(turns) for name, turns in numbers.items()},
        "tau_of_category": {
            name: round(best(search.scores(turns)).tau, 4) for name, turns in numbers.items()
        },
    }
    return TauFile(round(chosen.tau, 6), *arms, runs[0].target, provenance)


def _provenance(runs: Sequence[LoggedRun]) -> dict[str, Any]:
    import platform
    from datetime import UTC, datetime

    from whiflash import __version__

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "whiflash": __version__,
        "machine": platform.machine(),
        "costs": runs[0].costs.describe(),
    }


def _summary(found: TauFile, categories: Sequence[CategoryPrompts], out: Path) -> list[str]:
    told = found.provenance
    lines = [
        f"tau {found.tau:.4g} nats: {told['roots_above_tau']:.0%} of {told['roots']} roots above "
        f"it take {found.above}, the others {found.below}",
        "tokens/s: " + ", ".join(f"{name} {rate:.1f}" for name, rate in
                                 told["tokens_per_s"].items()),
        f"wrote {out}; use it with --policy entropy:file={out}",
    ]  # fmt: skip
    few = [c.name for c in categories if len(c.prompts) < MIN_PROMPTS]
    if few:
        lines.insert(0, f"note: fewer than {MIN_PROMPTS} prompts in {', '.join(few)}; the paper "
                        f"takes {MIN_PROMPTS} to {MAX_PROMPTS} per category")  # fmt: skip
    return lines
