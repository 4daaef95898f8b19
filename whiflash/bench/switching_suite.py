"""Suite `switching`: what it costs to change the drafting paradigm every 1, 4 or 16 rounds, with
and without each of the things that make it cheap."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from whiflash.bench.absorb import WholeLayers, absorb_table, twin_of
from whiflash.bench.checkpoints import neural_folders
from whiflash.bench.progress import say
from whiflash.bench.prompts import all_prompts
from whiflash.bench.random_drafters import TargetShape, write_dflash, write_eagle3
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.bench.switching_session import Script, Steps, SwitchingCore
from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.drafters.eagle3.drafter import Eagle3Drafter
from whiflash.drafters.neural import NeuralDrafter
from whiflash.engine.build import EngineParts, build_parts
from whiflash.models.sources import resolve

ARMS: Final = ("eagle3", "dflash")
WINDOW: Final = 512
_PROMPT_TOKENS: Final = 1280
_NO_WINDOW: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """arms: in turn, each for `period` rounds."""

    name: str
    arms: tuple[str, ...]
    period: int


RATES: Final = (
    Rate("never, eagle3", ("eagle3",), 1),
    Rate("never, dflash", ("dflash",), 1),
    Rate("1/16", ARMS, 16),
    Rate("1/4", ARMS, 4),
    Rate("1", ARMS, 1),
)
COLUMNS: Final = (
    Column("rate", "switches per round"),
    Column("rounds", "rounds"),
    Column("round_ms", "round, ms", ".1f"),
    Column("lazy", "as it is", ".2%"),
    Column("eager", "no lazy catch-up", ".2%"),
    Column("whole", "no KV-only prefill", ".2%"),
    Column("unbounded", "no window", ".2%"),
    Column("forgetful", "drafter KV dropped between turns", ".2%"),
    Column("rerun", "no tap plane", ".1%"),
)


def run(options: SuiteOptions) -> SuiteResult:
    """About ten minutes on two cores; `is_quick` about one."""
    folders = neural_folders(options.model, options.drafters)
    with _engine(options.model, folders) as parts:
        script = _script(parts, 16 if options.is_quick else 40)
        rows = _rows(parts, script, 1 if options.is_quick else 3)
        absorbing = absorb_table(parts, 1 if options.is_quick else 9)
        setting = _setting(options.model, parts, folders, script)
    return SuiteResult(
        title="switching between paradigms",
        setting=setting,
        tables=(Table("switching", "Share of a round", _NOTE, COLUMNS, tuple(rows)), absorbing),
        highlights=_highlights(rows),
    )


@contextmanager
def _engine(model: str, folders: Mapping[str, str]) -> Iterator[EngineParts]:
    """Built and stepped on this thread. What `folders` lacks gets random weights."""
    with tempfile.TemporaryDirectory() as made:
        shape = TargetShape.read(resolve(model))
        eagle3 = folders.get("eagle3") or write_eagle3(Path(made) / "eagle3", shape)
        dflash = folders.get("dflash") or write_dflash(Path(made) / "dflash", shape)
        drafters = (f"eagle3:{eagle3},tree=chain", f"dflash:{dflash}")
        config = EngineConfig.of(model=model, drafters=drafters, plain_share=0.0)
        with closing(build_parts(config)) as parts:
            yield parts


def _script(parts: EngineParts, answer_tokens: int) -> Script:
    """Three turns behind a long prompt, a file's text between them."""
    chat = ChatFormat.for_model(parts.folder, parts.config.model)
    prompts = list(all_prompts())
    written = "\n".join(chat.render(p.messages, p.tools or None) for p in prompts)
    result = "\n".join(p.start for p in prompts if p.start)
    middle = tuple(parts.tokenizer.encode(result))[:96]
    prompt = tuple(parts.tokenizer.encode(written))[:_PROMPT_TOKENS]
    return Script(prompt, (middle, middle), answer_tokens)


def _rows(parts: EngineParts, script: Script, repeats: int) -> list[dict[str, Any]]:
    drafters = {arm: parts.drafters[arm] for arm in ARMS}
    eagle3, dflash = drafters["eagle3"], drafters["dflash"]
    assert isinstance(eagle3, Eagle3Drafter)
    assert isinstance(dflash, NeuralDrafter)
    whole = {"eagle3": WholeLayers(eagle3), "dflash": twin_of(dflash)}
    unbounded = {"eagle3": twin_of(eagle3), "dflash": twin_of(dflash)}
    cores = {
        "lazy": SwitchingCore(parts, drafters, WINDOW),
        "whole": SwitchingCore(parts, whole, WINDOW),
        "unbounded": SwitchingCore(parts, unbounded, _NO_WINDOW),
    }
    for name, core in cores.items():  # what is compiled on first use, and the prompt's KV
        say(f"the prompt, {name}")
        core.run(script, ARMS, 1)
    rows = [_row(parts, cores, script, rate, repeats) for rate in RATES]
    for core in cores.values():
        core.close()
    return rows


def _row(
    parts: EngineParts,
    cores: Mapping[str, SwitchingCore],
    script: Script,
    rate: Rate,
    repeats: int,
) -> dict[str, Any]:
    say(f"switches per round: {rate.name}")
    lazy, turn = cores["lazy"], (script, rate.arms, rate.period)
    found: dict[str, list[Steps]] = {}
    for _ in range(repeats):
        for name, core in cores.items():
            found.setdefault(name, []).append(core.run(*turn))
        found.setdefault("eager", []).append(lazy.run(*turn, is_eager=True))
        found.setdefault("forgetful", []).append(lazy.run(*turn, keeps_drafts=False))
    last = found["lazy"][-1]
    curve = parts.target.verify_curve
    shares = {name: median(steps.share for steps in runs) for name, runs in found.items()}
    return {
        "rate": rate.name,
        "rounds": len(last.total_ms),
        "round_ms": median(last.total_ms),
        **shares,
        "rerun": last.share_with(sum(curve.at(tokens) for tokens in last.rerun_tokens)),
    }


def _setting(
    model: str, parts: EngineParts, folders: Mapping[str, str], script: Script
) -> dict[str, Any]:
    target = parts.target.info
    weights = {arm: "trained" if arm in folders else "random weights" for arm in ARMS}
    described = "; ".join(f"{arm}: {what}" for arm, what in weights.items())
    turns = len(script.results) + 1
    return {
        "model": f"{model}, {target.dtype}, {target.linears} linears",
        "drafters": f"real shapes, {described}; eagle3 as a chain",
        "text": f"one session of {turns} turns, greedy, one row: {len(script.prompt)} prompt "
        f"tokens, {script.answer_tokens} answered a turn, {len(script.results[0])} between",
        "window": f"{WINDOW} (the default, 2048, is more than this prompt)",
    }


_NOTE: Final = (
    "Time spent on bringing drafters up to the root, as a share of the decode steps of a whole "
    "session, the first backlog among it; a drafter that is never left absorbs what each round "
    "brought. `no lazy catch-up`: every drafter absorbs every round, asked or not. `no KV-only "
    "prefill`: EAGLE-3 runs what it absorbs through its layer in full (DFlash computes nothing but "
    "K and V by its nature). `no tap plane`: the target run again, by its measured curve, over "
    "what the last forward did not bring. Medians of alternating runs."
)


def _highlights(rows: Sequence[dict[str, Any]]) -> tuple[Highlight, ...]:
    return tuple(
        Highlight(
            what=f"switching paradigms, {row['rate']} a round",
            figure=f"{row['lazy']:.1%} of a round",
            twin=f"{row['eager']:.1%} with both drafters always synchronised, {row['rerun']:.0%} "
            "without kept taps",
            setting="one session, one row",
        )
        for row in rows
        if not row["rate"].startswith("never")
    )
