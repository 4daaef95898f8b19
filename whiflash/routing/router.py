"""What the engine asks each step: who drafts with what, what is verified, what was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Policy
from whiflash.core.rows import NONE, Choice, Outcome, Prediction, RouteRow, StepCost
from whiflash.core.signals import SignalNeeds
from whiflash.routing.assign import PLAIN
from whiflash.routing.assigner import Assigner
from whiflash.routing.costs import CostModel
from whiflash.routing.fallback import FallBack
from whiflash.routing.offers import load_of
from whiflash.routing.plain_steps import PlainSteps
from whiflash.routing.price import Price
from whiflash.routing.rest import Rests
from whiflash.routing.setting import (
    calibration,
    describe_policy,
    drafts_all,
    forget_arm,
    observe_shadows,
    revert,
    signal_needs,
)
from whiflash.routing.setting import may_rest as policy_may_rest
from whiflash.routing.trim import trim


class Router:
    """Policy, costs, price and the joint choice, behind four calls per step. One thread uses it.

    plain_share: share of decode steps that run wholly plain, whatever the policy, so that
                 "never slower" is measured; 0 turns it off (and the price then rests on the cost
                 model alone).
    may_rest: whether rows that draft nothing may be looked at less often; only under policies
                 that allow it.
    A fixed prediction (the published rules) is not touched by the fall-back, dwell or price.
    needs, drafts_all: what the policy asks of the engine (its attributes of these names); a policy
    that follows a router elsewhere may come to ask for something else.
    """

    def __init__(
        self,
        policy: Policy,
        costs: CostModel,
        *,
        plain_share: float = 0.01,
        dwell_rounds: int = 4,
        switch_gain_tokens: float = 0.1,
        seed: int = 0,
        may_rest: bool = True,
    ) -> None:
        self.policy = policy
        self.costs = costs
        self.price = Price(costs)
        self._fallback = FallBack(self.price)
        self._plain_steps = PlainSteps(plain_share, seed)
        self._all_rests = Rests() if may_rest else None
        self._assigner = Assigner(dwell_rounds=dwell_rounds, switch_gain_tokens=switch_gain_tokens)
        self._load = 1
        self._rounds: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()

    @property
    def needs(self) -> SignalNeeds:
        return signal_needs(self.policy)

    @property
    def drafts_all(self) -> bool:
        return drafts_all(self.policy)

    @property
    def _rests(self) -> Rests | None:
        return self._all_rests if policy_may_rest(self.policy) else None

    def awake(self, looks: Mapping[int, bool | None], *, is_prefilling: bool) -> set[int]:
        """After a step: which sequences' next round is to be looked at. The others run plain,
        without signals or proposals.

        looks: by sequence that goes on, whether a look at this round ended in a draft, None where
        nobody looked. is_prefilling: the next step carries prefill.
        """
        load = len(looks)
        # A step with prefill would measure the prefill.
        if not is_prefilling and self._plain_steps.force(load):
            return set()
        if self._rests is None:
            return set(looks)
        rested = {s for s, has_drafted in looks.items() if self._rests.wakes(s, has_drafted, load)}
        return set() if self._fallback.is_active(load) else rested

    def choose(self, rows: Sequence[RouteRow], base_tokens: int) -> list[Choice]:
        """One choice per row, in order.

        base_tokens: rows of the coming forward that belong to none of `rows`: prefill, and
        sequences that have no choice to make.
        """
        if not any(_has_offer(row) for row in rows):
            return [PLAIN] * len(rows)
        predictions = self.policy.predict(rows)
        self._load = load_of(rows)
        if self._fallback.is_active(self._load):
            predictions = [p if p.fixed is not None else _NO_DRAFT for p in predictions]
        price = self.price.at(self._load)
        return self._assigner.choose(rows, predictions, self.costs, price, base_tokens + len(rows))

    def trim(
        self, trees: Sequence[DraftTree], choices: Sequence[Choice], base_tokens: int
    ) -> list[DraftTree]:
        """What is verified of the drafts that came, in order; `base_tokens` as in `choose`, and a
        choice's row may be left out of both lists in between."""
        if not any(len(tree) for tree in trees):
            return list(trees)
        price = self.price.at(self._load)
        calibrated = calibration(self.policy)
        return trim(trees, choices, self.costs, price, base_tokens + len(trees), calibrated)

    def observe(self, outcomes: Sequence[Outcome], step: StepCost) -> None:
        """The step that came of the last choice: an outcome per row that was routed."""
        drafted = sum(outcome.drafted for outcome in outcomes)
        # In a decode step each row of the forward is a root or a draft node.
        rows = step.tokens - drafted if step.was_decode_only else len(outcomes)
        self.costs.observe(step, rows, _draft_rows(outcomes))
        if not step.was_pinned:
            self.price.observe(step, rows)
            if self._fallback.observe(step, rows):
                revert(self.policy)
            self._plain_steps.observe(step, rows)
            if self._rests is not None:
                self._rests.observe(step, rows)
        for outcome in outcomes:
            arm = outcome.choice.arm if outcome.drafted else NONE
            self._rounds[arm] += 1
            self._emitted[arm] += outcome.emitted
        if not step.was_plain or any(_has_offer(outcome.row) for outcome in outcomes):
            self.policy.observe(outcomes)

    def observe_shadows(self, outcomes: Sequence[Outcome]) -> None:
        """What proposals would have brought that were never verified, at roots drawn by chance: of
        no step, so that costs and price learn nothing."""
        observe_shadows(self.policy, outcomes)

    def forget(self, sequence_id: int) -> None:
        """The sequence ended."""
        self._assigner.forget(sequence_id)
        if self._all_rests is not None:
            self._all_rests.forget(sequence_id)

    def forget_arm(self, arm: str, weight_hash: str) -> None:
        """Other weights draft under its name: neither its costs nor its worth are known."""
        self.costs.forget_arm(arm)
        self._assigner.forget_arm(arm)
        forget_arm(self.policy, arm, weight_hash)

    def snapshot(self) -> dict[str, Any]:
        """The state that plan and metrics show."""
        total = sum(self._rounds.values())
        return {
            "policy": self.policy.name,
            "learned": describe_policy(self.policy),
            "price": self.price.describe(),
            "fallback": self._fallback.describe(),
            "rests": self._rests.describe() if self._rests is not None else {},
            "shares": {arm: n / total for arm, n in sorted(self._rounds.items())},
            "rounds": dict(self._rounds),
            "emitted": dict(self._emitted),
            "forced_plain_steps": self._plain_steps.num_forced,
            "costs": self.costs.describe(),
        }

    def check_integrity(self) -> None:
        self.costs.check_integrity()
        self._fallback.check_integrity()
        self._assigner.check_integrity()
        assert set(self._emitted) <= set(self._rounds)


_NO_DRAFT = Prediction()


def _has_offer(row: RouteRow) -> bool:
    """Whether the row could draft at all: an arm that is still to draft, or a draft at hand."""
    if row.max_nodes <= 0:
        return False
    for arm in row.arms:
        if arm != NONE and (arm not in row.drafts or row.drafts[arm].tokens.size > 0):
            return True
    return False


def _draft_rows(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Rows that each arm was asked for."""
    asked: Counter[str] = Counter()
    for outcome in outcomes:
        for arm in {*outcome.row.drafts, outcome.choice.arm}:
            asked[arm] += 1
    return asked
