"""tau of the entropy rule: the threshold with the highest goodput along logged texts.

WhiFlash calibrates on 32 to 64 prompts per category; what it maximises is not public. Here it is
TPS(tau) = sum of emitted tokens / sum of round times of the rounds that the rule would have run,
at measured costs, catch-up included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whiflash.core.errors import ConfigError
from whiflash.routing.replay.costs import ReplayCosts
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.replay.turns import Root, Turn

MAX_CANDIDATES = 64
_ALWAYS_ABOVE = -1.0


@dataclass(frozen=True, slots=True)
class _Stop:
    """A root where both arms are known. ms: by arm, without catch-up."""

    entropy: float
    emitted: tuple[int, int]
    ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Text:
    """A turn for two arms; stops by position."""

    turn: Turn
    stops: dict[int, _Stop]
    per_token_ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class TauScore:
    """What a threshold came to; share_above: of its rounds."""

    tau: float
    tokens_per_s: float
    share_above: float


class TauSearch:
    """Two arms on the turns of logs that hold both arms' proposals at the same roots.

    Raises ConfigError if no root holds both.
    """

    def __init__(self, runs: Sequence[LoggedRun], above: str, below: str) -> None:
        arms = above, below
        self._texts = [_text(turn, run, arms) for run in runs for turn in run.turns]
        self.entropies = np.array([s.entropy for t in self._texts for s in t.stops.values()])
        self.num_censored = sum(
            root.max_nodes > 0 and position not in text.stops
            for text in self._texts
            for position, root in text.turn.roots.items()
        )
        if not len(self.entropies):
            raise ConfigError(f"no root of the log holds proposals of both {above} and {below}; "
                              "record it with --policy survey")  # fmt: skip

    def candidates(self) -> list[float]:
        """Thresholds between the entropies that were seen, thinned evenly by rank; the first has
        every root above it, the last none."""
        seen = np.unique(self.entropies)
        middles = (seen[1:] + seen[:-1]) / 2.0
        if len(middles) > MAX_CANDIDATES:
            wanted = np.quantile(self.entropies, np.linspace(0.0, 1.0, MAX_CANDIDATES + 2)[1:-1])
            middles = np.unique(
                middles[np.searchsorted(middles, wanted).clip(max=len(middles) - 1)]
            )
        return [_ALWAYS_ABOVE, *middles.tolist(), float(seen[-1]) + 1.0]

    def score(self, tau: float, numbers: Sequence[int] | None = None) -> TauScore:
        """Along all turns, or those of `numbers` (in the log's order)."""
        emitted = num_above = num_rounds = 0
        total_ms = 0.0
        for number in range(len(self._texts)) if numbers is None else numbers:
            for tokens, ms, arm in _rounds(self._texts[number], tau):
                emitted += tokens
                total_ms += ms
                num_rounds += 1
                num_above += arm == 0
        rate = 1e3 * emitted / total_ms if total_ms > 0.0 else 0.0
        return TauScore(tau, rate, num_above / max(num_rounds, 1))

    def scores(self, numbers: Sequence[int] | None = None) -> list[TauScore]:
        return [self.score(tau, numbers) for tau in self.candidates()]


def best(scores: Sequence[TauScore]) -> TauScore:
    """The first of the highest goodput."""
    return max(scores, key=lambda score: score.tokens_per_s)


def _text(turn: Turn, run: LoggedRun, arms: tuple[str, str]) -> _Text:
    stops: dict[int, _Stop] = {}
    for position, root in turn.roots.items():
        left = turn.last - position
        one, two = (_outcome(root, arm, left, run.costs) for arm in arms)
        if one is not None and two is not None and np.isfinite(root.signals.entropy):
            stops[position] = _Stop(root.signals.entropy, (one[0], two[0]), (one[1], two[1]))
    above, below = (
        0.0 if run.free.get(arm, True) else run.costs.catch_up_ms(arm, 1) for arm in arms
    )
    return _Text(turn, stops, (above, below))


def _outcome(root: Root, arm: str, left: int, costs: ReplayCosts) -> tuple[int, float] | None:
    proposal = root.known(arm)
    if proposal is None:
        return None
    emitted = min(proposal.accepted(proposal.nodes) + 1, left)
    return emitted, costs.round_ms(arm, proposal.nodes, 0)


def _rounds(text: _Text, tau: float) -> Iterator[tuple[int, float, int]]:
    """(tokens, ms, 0 above or 1 below) of the rule's rounds; what is not known is passed over."""
    absorbed = [0, 0]
    position = text.turn.first
    while position < text.turn.last:
        stop = text.stops.get(position)
        if stop is None:
            position = text.turn.next_root(position)
            continue
        arm = 0 if stop.entropy > tau else 1
        backlog = position - absorbed[arm]
        absorbed[arm] = position
        yield stop.emitted[arm], stop.ms[arm] + text.per_token_ms[arm] * backlog, arm
        position += stop.emitted[arm]
