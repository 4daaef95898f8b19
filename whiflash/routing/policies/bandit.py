"""bandit: MetaSD-UCB (arXiv 2604.05417), which drafter to use as a bandit's problem.

What it does. One drafter per round, training-free: every arm once, then the arm with the highest
mean reward + beta * sqrt(2 ln t / n). Reward `divergence` is the paper's block divergence,
1 / N_max * sum over the block of 1 - d_TV(p, q). No q is stored here (drafts are what they are,
whatever they came from), so q is the drafted ids themselves, and 1 - d_TV is the target's raw
probability of them, at accepted and at rejected positions alike. Reward `efficiency` is the
paper's baseline, accepted / N_max. N_max is what the row may verify. An arm that proposed nothing
has reward 0. As in the paper it starts anew with every query; `scope=namespace` goes on instead.

When it is neutral. Never by itself: it has no `none`, and every new sequence tries every arm. With
`trim` it drafts nothing where nothing pays; an arm that was left out counts as reward 0.

Parameters.
    reward: str = "divergence"   or efficiency.
    beta: float = 1.0            weight of exploration; the paper's value is unknown.
    scope: str = "query"         or namespace: whose rewards are counted together.
    max_states: int = 4096       states kept; the longest unused is dropped.
    trim: bool = False           `rule + trim`: the budget, 0 included, is left to the joint choice.

Example. `make_policy("bandit", costs, reward="efficiency", beta=0.5)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.routing.bounded import Bounded
from whiflash.routing.costs import Costs
from whiflash.routing.rule import RuleChoice, RuleMode

REWARDS = ("divergence", "efficiency")
SCOPES = ("query", "namespace")
_MAX_OPEN = 4096
StateKey = int | str


@dataclass(slots=True)
class ArmMeans:
    """Plays and summed rewards by arm."""

    plays: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, arm: str, reward: float) -> None:
        """One play. What is no number counts as 0, so that no arm stays unplayed."""
        kept = min(max(reward, 0.0), 1.0) if math.isfinite(reward) else 0.0
        self.plays[arm] = self.plays.get(arm, 0) + 1
        self.sums[arm] = self.sums.get(arm, 0.0) + kept

    def best(self, arms: Sequence[str], beta: float) -> str:
        """Of `arms` the first that was never played, else the highest bound; first on a tie."""
        for arm in arms:
            if not self.plays.get(arm):
                return arm
        log_t = math.log(sum(self.plays.values()))

        def bound(arm: str) -> float:
            count = self.plays[arm]
            return self.sums[arm] / count + beta * math.sqrt(2.0 * log_t / count)

        return max(arms, key=bound)


@dataclass(frozen=True, slots=True)
class _Play:
    """An arm that was asked for; its round is still to be seen, or its divergence."""

    key: StateKey
    arm: str
    max_nodes: int


class BanditPolicy:
    """UCB over arms; see the module's docstring."""

    def __init__(
        self,
        costs: Costs,
        *,
        reward: str = "divergence",
        beta: float = 1.0,
        scope: str = "query",
        max_states: int = 4096,
        trim: bool = False,
    ) -> None:
        if reward not in REWARDS or scope not in SCOPES:
            raise ConfigError(
                f"policy 'bandit' needs reward={'|'.join(REWARDS)} and scope={'|'.join(SCOPES)}, "
                f"got {reward!r} and {scope!r}"
            )
        if not 0.0 <= beta < math.inf or max_states < 1:
            raise ConfigError("policy 'bandit' needs a beta of at least 0 and max_states of at "
                              f"least 1, got {beta} and {max_states}")  # fmt: skip
        self._is_divergence = reward == "divergence"
        self._is_per_query = scope == "query"
        self._beta = beta
        self._states: Bounded[StateKey, ArmMeans] = Bounded(max_states)
        self._asked: Bounded[int, _Play] = Bounded(_MAX_OPEN)
        self._drafted: Bounded[int, _Play] = Bounded(_MAX_OPEN)
        self._mode = RuleMode(costs, trim)

    @property
    def name(self) -> str:
        return self._mode.name("bandit")

    @property
    def needs(self) -> SignalNeeds:
        return SignalNeeds(agreement=self._is_divergence)

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        for row in rows:
            self._reward_divergence(row)
        return self._mode.predictions(rows, [self._choice(row) for row in rows])

    def _choice(self, row: RouteRow) -> RuleChoice:
        arms = [arm for arm in row.arms if arm != NONE]
        if not arms or row.max_nodes <= 0:
            return NONE, 0
        key: StateKey = row.sequence_id if self._is_per_query else row.namespace
        arm = self._states.get(key, ArmMeans).best(arms, self._beta)
        self._asked.put(row.sequence_id, _Play(key, arm, row.max_nodes))
        return arm, row.max_nodes

    def _reward_divergence(self, row: RouteRow) -> None:
        """The round that led to this root: the target has looked at its whole draft."""
        play = self._drafted.pop(row.sequence_id)
        if play is not None and row.signals.agreement is not None:
            self._add(play, sum(row.signals.agreement) / play.max_nodes)

    def _add(self, play: _Play, reward: float) -> None:
        self._states.get(play.key, ArmMeans).add(play.arm, reward)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            play = self._asked.pop(outcome.row.sequence_id)
            if play is not None and not outcome.ended:
                self._note(play, outcome)
        self._mode.observe(outcomes)

    def _note(self, play: _Play, outcome: Outcome) -> None:
        was_drafted = outcome.drafted > 0 and outcome.choice.arm == play.arm
        if was_drafted and self._is_divergence:
            self._drafted.put(outcome.row.sequence_id, play)
        else:
            accepted = outcome.accepted if was_drafted else 0
            self._add(play, accepted / play.max_nodes)

    def check_integrity(self) -> None:
        for table in (self._states, self._asked, self._drafted):
            table.check_integrity()
        self._mode.check_integrity()
