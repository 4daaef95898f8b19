"""Whether the time of an answer tells what another namespace's store holds.

A victim's agent writes a text, or another one. A prober then asks for that text and looks at the
clock and at the rounds. In its own namespace it must not see a difference; in the victim's (an
injected leak) it must, or else the measurement is blind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from whiflash.bench.suite import Column, Table
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine

FLUSH_S: Final = 30.0
SUBJECTS: Final = (
    "a lighthouse", "an old clock", "a lost glove", "the harbour at night", "a narrow street",
    "a paper kite", "the first snow", "a broken radio", "a garden wall", "the night train",
    "a copper kettle", "the baker's cat",
)  # fmt: skip
OTHER: Final = "Explain how rain is made."


@dataclass(frozen=True, slots=True)
class Probe:
    """What the prober saw: milliseconds of the whole answer, and rounds."""

    ms: float
    rounds: int


def auc(lower: Sequence[float], higher: Sequence[float]) -> float:
    """Probability that a value of the second sample is above one of the first, ties counting half:
    0.5 tells nothing, 0 and 1 all."""
    pairs = [(a < b) + 0.5 * (a == b) for a in lower for b in higher]
    return sum(pairs) / len(pairs)


class IsolationProbe:
    """`render` makes a prompt of a user's words."""

    def __init__(self, engine: Engine, render: Callable[[str], str], max_tokens: int) -> None:
        self._engine = engine
        self._render = render
        self._params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self._count = 0

    def samples(self, num_trials: int, is_leaky: bool) -> tuple[list[Probe], list[Probe]]:
        """Where the victim wrote the text that is asked for, and where it did not; in alternation,
        in namespaces that nobody used before."""
        hit: list[Probe] = []
        miss: list[Probe] = []
        for trial in range(num_trials):
            subject = SUBJECTS[trial % len(SUBJECTS)]
            worlds = [(hit, True), (miss, False)]
            for into, is_hit in worlds if trial % 2 == 0 else worlds[::-1]:
                into.append(self._trial(subject, is_hit, is_leaky))
        return hit, miss

    def _trial(self, subject: str, is_hit: bool, is_leaky: bool) -> Probe:
        self._count += 1
        victim, prober = f"victim-{self._count}", f"prober-{self._count}"
        wanted = self._render(f"Write a few lines about {subject}.")
        self._answer(wanted if is_hit else self._render(OTHER), victim, is_stored=True)
        if not self._engine.store.indexes.flush(FLUSH_S):
            raise TimeoutError("the index did not keep up")
        return self._answer(wanted, victim if is_leaky else prober, is_stored=False)

    def _answer(self, prompt: str, namespace: str, is_stored: bool) -> Probe:
        start = time.perf_counter()
        done = self._engine.generate(
            prompt, self._params, namespace=namespace, drafter="retrieval", store=is_stored
        )
        ms = (time.perf_counter() - start) * 1e3
        return Probe(ms, done.choices[0].usage.rounds)


def isolation_table(
    engine: Engine, render: Callable[[str], str], num_trials: int, max_tokens: int
) -> Table:
    """One row for the product as it is, one for the injected leak."""
    probe = IsolationProbe(engine, render, max_tokens)
    rows = tuple(
        _row(name, *probe.samples(num_trials, is_leaky))
        for name, is_leaky in (
            ("own namespace", False),
            ("injected leak: the victim's namespace", True),
        )
    )
    return Table("isolation", "does the clock tell what another one stored?", NOTE, COLUMNS, rows)


def _row(prober: str, hit: Sequence[Probe], miss: Sequence[Probe]) -> dict[str, Any]:
    return {
        "prober": prober,
        "trials": len(hit),
        "hit_ms": median(_ms(hit)),
        "miss_ms": median(_ms(miss)),
        "hit_rounds": median(one.rounds for one in hit),
        "miss_rounds": median(one.rounds for one in miss),
        "auc_time": auc(list(_ms(hit)), list(_ms(miss))),
        "auc_rounds": auc([one.rounds for one in hit], [one.rounds for one in miss]),
    }


def _ms(probes: Sequence[Probe]) -> Iterator[float]:
    return (one.ms for one in probes)


COLUMNS: Final = (
    Column("prober", "prober works in"),
    Column("trials", "trials"),
    Column("hit_ms", "victim wrote it, ms", ".0f"),
    Column("miss_ms", "victim did not, ms", ".0f"),
    Column("hit_rounds", "rounds", ".0f"),
    Column("miss_rounds", "rounds (not)", ".0f"),
    Column("auc_time", "AUC by time", ".2f"),
    Column("auc_rounds", "AUC by rounds", ".2f"),
)
NOTE: Final = (
    "AUC: how well the two cases can be told apart, 0.50 is a coin. The leak is put in on purpose, "
    "by giving the prober the victim's namespace: a measurement that missed it would be blind."
)
