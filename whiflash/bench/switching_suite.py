"""Suite `switching`: what it costs to change the drafting paradigm every 1, 4 or 16 rounds."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from whiflash.bench.absorb import absorb_table
from whiflash.bench.prompts import all_prompts
from whiflash.bench.random_drafters import TargetShape, write_dflash, write_eagle3
from whiflash.bench.suite import Column, Highlight, SuiteOptions, SuiteResult, Table
from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import Outcome, Prediction, RouteRow
from whiflash.engine.build import EngineParts, build_parts
from whiflash.engine.sequence import State
from whiflash.engine.ticket import Ticket
from whiflash.models.sources import resolve

PERIODS: Final = (1, 4, 16)
ARMS: Final = ("eagle3", "dflash")
_STARTED: Final = time.perf_counter()

COLUMNS: Final = (
    Column("rate", "switches per round"),
    Column("rounds", "rounds"),
    Column("round_ms", "round, ms", ".1f"),
    Column("lazy", "lazy catch-up", ".1%"),
    Column("eager", "always synchronised", ".1%"),
    Column("rerun", "no tap plane", ".1%"),
)


class AlternatingPolicy:
    """The arms in turn, each for `period` rounds."""

    name = "alternating"

    def __init__(self, period: int) -> None:
        self._period = period
        self._round = 0

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        arm = ARMS[self._round // self._period % len(ARMS)]
        self._round += 1
        return [Prediction(fixed=(arm, row.max_nodes)) for row in rows]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""


@dataclass(slots=True)
class Steps:
    """Milliseconds of the decode steps of one run: whole, and spent on catching up; `backlogs`
    are the positions absorbed at each switch."""

    total_ms: list[float] = field(default_factory=list)
    catch_up_ms: list[float] = field(default_factory=list)
    backlogs: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        return sum(self.catch_up_ms) / sum(self.total_ms)


def run(options: SuiteOptions) -> SuiteResult:
    """About two minutes on two cores."""
    if options.data is not None:
        raise ConfigError("the suite switching brings its own prompt; leave --data away")
    num_tokens = 24 if options.is_quick else 128
    repeats = 1 if options.is_quick else 3
    with _engine(options.model) as parts:
        prompt = _prompt(parts)
        _run(parts, prompt, 16, 1, is_eager=False)  # what is compiled on first use
        rows = [_row(parts, prompt, num_tokens, period, repeats) for period in PERIODS]
        absorbing = absorb_table(parts, 1 if options.is_quick else 9)
        target = parts.target.info
        setting = {
            "model": f"{options.model}, {target.dtype}, {target.linears} linears",
            "drafters": "real shapes, random weights: eagle3 (one layer, three boundaries, chain "
            "of 6), dflash (four layers, five boundaries, block 8)",
            "text": f"chat, {len(prompt)} prompt tokens, {num_tokens} answered, greedy, one row",
        }
    return SuiteResult(
        title="switching between paradigms",
        setting=setting,
        tables=(Table("switching", "Share of a round", _NOTE, COLUMNS, tuple(rows)), absorbing),
        highlights=_highlights(rows),
    )


@contextmanager
def _engine(model: str) -> Iterator[EngineParts]:
    """Built and stepped on this thread."""
    with tempfile.TemporaryDirectory() as folder:
        shape = TargetShape.read(resolve(model))
        eagle3 = write_eagle3(Path(folder) / "eagle3", shape)
        dflash = write_dflash(Path(folder) / "dflash", shape)
        drafters = (f"eagle3:{eagle3},tree=chain", f"dflash:{dflash}")
        config = EngineConfig.of(model=model, drafters=drafters, plain_share=0.0)
        with closing(build_parts(config)) as parts:
            yield parts


def _prompt(parts: EngineParts) -> tuple[int, ...]:
    chat = ChatFormat.for_model(parts.folder, parts.config.model)
    texts = [p for p in all_prompts() if p.kind in ("chat", "edit")]
    written = "\n".join(chat.render(prompt.messages) for prompt in texts)
    return tuple(parts.tokenizer.encode(written))


def _run(
    parts: EngineParts, prompt: tuple[int, ...], num_tokens: int, period: int, *, is_eager: bool
) -> Steps:
    parts.router.policy = AlternatingPolicy(period)
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    request = GenerationRequest(prompt, params, store=False)
    core, steps = parts.core, Steps()
    core.submit(Ticket(request, 0))
    while core.has_work:
        is_decoding = any(s.state is State.DECODE for s in core.running)
        started = time.perf_counter()
        core.step()
        spent = dict(core.drafting.catch_ups.spent)
        catch_up_ms = sum(ms for _, ms in spent.values())
        if is_eager:
            catch_up_ms += _synchronise(parts)
        if is_decoding:
            steps.total_ms.append(1e3 * (time.perf_counter() - started))
            steps.catch_up_ms.append(catch_up_ms)
            steps.backlogs += [tokens for tokens, _ in spent.values()]
    core.admission.prefixes.clear()  # the next run shall not find this one's prompt
    return steps


def _synchronise(parts: EngineParts) -> float:
    """Milliseconds to bring every drafter up to every root, asked for or not."""
    core = parts.core
    rows = [sequence for sequence in core.running if sequence.state is State.DECODE]
    started = time.perf_counter()
    for arm in ARMS:
        core.drafting.catch_ups.run(arm, [row for row in rows if row.is_draft_open])
    return 1e3 * (time.perf_counter() - started)


def _row(
    parts: EngineParts, prompt: tuple[int, ...], num_tokens: int, period: int, repeats: int
) -> dict[str, Any]:
    _say(f"a switch every {period} rounds")
    lazy, eager = [], []
    for _ in range(repeats):
        lazy.append(_run(parts, prompt, num_tokens, period, is_eager=False))
        eager.append(_run(parts, prompt, num_tokens, period, is_eager=True))
    last = lazy[-1]
    rerun_ms = sum(parts.router.costs.verify_ms(tokens) for tokens in last.backlogs)
    return {
        "rate": "1" if period == 1 else f"1/{period}",
        "rounds": len(last.total_ms),
        "round_ms": median(last.total_ms),
        "lazy": median(steps.share for steps in lazy),
        "eager": median(steps.share for steps in eager),
        "rerun": rerun_ms / (sum(last.total_ms) + rerun_ms),
    }


_NOTE: Final = (
    "Time spent on bringing drafters up to the root, as a share of the decode steps, the first "
    "backlog (the whole prompt) among it. `always synchronised`: every drafter absorbs every round "
    "whether it is asked or not. `no tap plane`: what running the target again over the same "
    "backlogs would add, by its measured curve. Medians of alternating runs; both absorb K and V "
    "alone."
)


def _highlights(rows: Sequence[dict[str, Any]]) -> tuple[Highlight, ...]:
    return tuple(
        Highlight(
            what=f"switching paradigms, {row['rate']} a round",
            figure=f"{row['lazy']:.1%} of a round",
            twin=f"{row['eager']:.1%} always synchronised, {row['rerun']:.1%} without taps kept",
            setting="one row, drafters of real shape",
        )
        for row in rows
    )


def _say(what: str) -> None:
    print(f"[{time.perf_counter() - _STARTED:5.0f} s] {what}", file=sys.stderr, flush=True)
