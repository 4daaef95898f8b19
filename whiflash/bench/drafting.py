"""Suite `core`: routed drafting, its no-draft twin, and transformers' prompt lookup."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from whiflash.bench.prompts import KINDS, BenchPrompt
from whiflash.bench.repetition import copied_share, repeated_share
from whiflash.bench.runs import cold_request, run_once
from whiflash.bench.suite import Column, Table
from whiflash.bench.timing import Ratio, Sample, alternate, paired_ratio
from whiflash.bench.transformers_twin import TransformersTwin
from whiflash.core.results import Completion
from whiflash.core.rows import NONE
from whiflash.core.usage import Usage
from whiflash.engine.engine import Engine

COLUMNS: Final = (
    Column("kind", "text"),
    Column("tokens", "tokens"),
    Column("repetition", "repeated", ".0%"),
    Column("copied", "copied from prompt", ".0%"),
    Column("accepted_length", "AL", ".2f"),
    Column("routed", "routed, tokens/s", ".1f"),
    Column("none", "none, tokens/s", ".1f"),
    Column("ratio", "routed : none", ".2f"),
    Column("lower", "lower bound", ".2f"),
    Column("same", "same text"),
    Column("twin_plain", "transformers plain, tokens/s", ".1f"),
    Column("twin_lookup", "its prompt lookup, tokens/s", ".1f"),
    Column("twin_ratio", "its ratio", ".2f"),
    Column("twin_same", "its same text"),
    Column("against_lookup", "routed : its lookup", ".2f"),
)
Runs = dict[str, list[Sample[Any]]]


@dataclass(slots=True)
class KindTotals:
    """Runs of all prompts of one kind. Speeds are whole calls, prefill included."""

    prompts: list[BenchPrompt] = field(default_factory=list)
    prompt_ids: list[tuple[int, ...]] = field(default_factory=list)
    runs: list[Runs] = field(default_factory=list)

    def rates(self, name: str) -> list[float]:
        """Tokens per second of every run, prompts and repeats in a fixed order."""
        return [
            len(_ids(sample.result)) / sample.seconds for runs in self.runs for sample in runs[name]
        ]

    def ratio(self, ours: str, baseline: str) -> Ratio:
        """Speed-up of `ours`, pair by pair: of rates, so that texts of other lengths do no harm."""
        seconds_per_token = {n: [1 / rate for rate in self.rates(n)] for n in (ours, baseline)}
        return paired_ratio(seconds_per_token[baseline], seconds_per_token[ours])

    def is_same(self, first: str, second: str) -> bool:
        """Whether every run of both gave the same ids."""
        return all(
            _ids(sample.result) == _ids(runs[second][0].result)
            for runs in self.runs
            for sample in (*runs[first], *runs[second])
        )


def measure_drafting(
    engine: Engine,
    twin: TransformersTwin,
    prompts: Sequence[BenchPrompt],
    encoded: Sequence[tuple[int, ...]],
    num_repeats: int,
    note: str,
) -> tuple[Table, dict[str, Ratio]]:
    """All prompts, greedy, one at a time; the table and the routed : none ratio of each kind."""
    totals: dict[str, KindTotals] = {}
    for prompt, ids in zip(prompts, encoded, strict=True):
        kind = totals.setdefault(prompt.kind, KindTotals())
        kind.prompts.append(prompt)
        kind.prompt_ids.append(ids)
        kind.runs.append(_run_prompt(engine, twin, ids, prompt.max_tokens, num_repeats))
    kinds = [kind for kind in KINDS if kind in totals]
    rows = tuple(_row(kind, totals[kind]) for kind in kinds)
    ratios = {kind: totals[kind].ratio("routed", "none") for kind in kinds}
    return Table("drafting", "Routed drafting by kind of text", note, COLUMNS, rows), ratios


def _run_prompt(
    engine: Engine, twin: TransformersTwin, ids: tuple[int, ...], max_tokens: int, num_repeats: int
) -> Runs:
    ours: dict[str, Callable[[], Any]] = {
        "routed": lambda: run_once(engine, cold_request(ids, max_tokens, None)),
        "none": lambda: run_once(engine, cold_request(ids, max_tokens, NONE)),
    }
    theirs: dict[str, Callable[[], Any]] = {
        "twin_plain": lambda: twin.generate(ids, max_tokens),
        "twin_lookup": lambda: twin.generate(ids, max_tokens, lookup=True),
    }
    return alternate(ours, num_repeats) | alternate(theirs, 1)


def _row(kind: str, totals: KindTotals) -> dict[str, Any]:
    ratio = totals.ratio("routed", "none")
    firsts = [runs["routed"][0].result for runs in totals.runs]
    answers = [_ids(first) for first in firsts]
    num_tokens = [len(answer) for answer in answers]
    copied = [
        copied_share(answer, prompt)
        for answer, prompt in zip(answers, totals.prompt_ids, strict=True)
    ]
    medians = {
        name: statistics.median(totals.rates(name))
        for name in ("routed", "none", "twin_plain", "twin_lookup")
    }
    return {
        "kind": kind,
        "tokens": sum(num_tokens),
        "repetition": _weighted([repeated_share(answer) for answer in answers], num_tokens),
        "copied": _weighted(copied, num_tokens),
        "accepted_length": accepted_length([first.usage for first in firsts]),
        **medians,
        "ratio": ratio.median,
        "lower": ratio.lower,
        "same": totals.is_same("routed", "none"),
        "twin_ratio": totals.ratio("twin_lookup", "twin_plain").median,
        "twin_same": totals.is_same("twin_lookup", "twin_plain"),
        "against_lookup": medians["routed"] / medians["twin_lookup"],
        "prompts": [prompt.name for prompt in totals.prompts],
        "arms": _arm_rounds([first.usage for first in firsts]),
    }


class _ArmRounds(Protocol):
    rounds: int
    emitted: int


class _Rounds(Protocol):
    """The engine's usage, or the message that the API makes of it."""

    @property
    def arms(self) -> Mapping[str, _ArmRounds]: ...


def rounds_and_emitted(usages: Sequence[_Rounds]) -> tuple[int, int]:
    """Rounds over all arms, plain ones included, and their tokens; rounds that end a turn are
    left out."""
    arms = [arm for usage in usages for arm in usage.arms.values()]
    return sum(arm.rounds for arm in arms), sum(arm.emitted for arm in arms)


def accepted_length(usages: Sequence[Usage]) -> float:
    """Tokens per round."""
    rounds, emitted = rounds_and_emitted(usages)
    return emitted / rounds if rounds else 0.0


def _arm_rounds(usages: Sequence[Usage]) -> dict[str, int]:
    names = sorted({name for usage in usages for name in usage.arms})
    return {name: sum(u.arms[name].rounds for u in usages if name in u.arms) for name in names}


def _weighted(shares: Sequence[float], weights: Sequence[int]) -> float:
    total = sum(weights)
    return sum(s * w for s, w in zip(shares, weights, strict=True)) / total if total else 0.0


def _ids(result: Completion | list[int]) -> list[int]:
    return list(result.token_ids) if isinstance(result, Completion) else result
