"""rules: when other systems prefer retrieval to a drafting model; three published rules.

What it does. `arctic` (ArcticInference, its vLLM plugin's model runner): retrieval if its score,
the expected accepted tokens of its draft, reaches the number of tokens that the model would draft;
the draft is at most factor * match length + offset long and ends where survival falls under 0.1.
`trtllm` (TensorRT-LLM, SADecodingConfig): retrieval if the match is at least 4 tokens long.
`respec` (ReSpec, arXiv 2511.01282, Algorithm 1): retrieval if the mean entropy over the best
lookback is at most theta and the candidate's score is good; strict verification, as everything
here. Otherwise the model drafts; where there is none, nothing (`arctic` then always retrieves).
In our terms: Arctic's score is the sum of the draft's survival. ReSpec scores match positions and
verifies several good ones as a tree; here retrieval makes one draft, and its candidate is known by
its source and the tokens it begins with, within the namespace.

When it is neutral. Where retrieval finds nothing and no model is there. None of the rules asks
what a node costs, so all lose under load; with `trim` they draft nothing where nothing pays.

Parameters.
    rule: str = "arctic"            arctic, trtllm or respec. Options of one exclude the others.
    model: str | None = None        the model's arm; None takes the row's first beside retrieval.
    draft_tokens: int = 3           arctic: tokens that the model drafts; the score to reach.
    factor: float = 1.0             arctic: draft tokens per matched token.
    offset: float = 0.0             arctic: draft tokens beyond those.
    disable_by_batch_size: int | None = None   arctic: above so many rows nothing is drafted.
    min_match: int = 4              trtllm: tokens.
    theta: float = 1.5              respec: nats.
    lambda_e: float = 1.0           respec: what short lookbacks pay; not in the paper's body.
    lookback: int = 3               respec: l, tokens.
    alpha: float = 0.3              respec: weight of the last use in a score; not in the paper.
    theta_score: float = 0.5        respec: the score of a good candidate.
    trim: bool = False              `rule + trim`: the budget is left to the joint choice.

Example. `make_policy("rules", costs, rule="respec", theta=1.0)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.routing.costs import Costs
from whiflash.routing.paradigms import RETRIEVAL, model_arm
from whiflash.routing.published import Arctic, ReSpec, TensorRT
from whiflash.routing.rule import RuleMode
from whiflash.routing.setting import PolicySetting, require_arms


class Rule(Protocol):
    """How much of the retrieved draft to take."""

    @property
    def needs(self) -> SignalNeeds: ...

    def budget(self, row: RouteRow, batch: int, has_model: bool) -> int | None:
        """Nodes of the retrieved draft; 0: the model drafts; None: nobody does."""

    def observe(self, outcomes: Sequence[Outcome]) -> None: ...


_RULES: Mapping[str, tuple[Callable[..., Rule], tuple[str, ...]]] = {
    "arctic": (Arctic, ("draft_tokens", "factor", "offset", "disable_by_batch_size")),
    "trtllm": (TensorRT, ("min_match",)),
    "respec": (ReSpec, ("theta", "lambda_e", "lookback", "alpha", "theta_score")),
}


class RulesPolicy:
    """Retrieval or a model, by a published rule; see the module's docstring."""

    def __init__(
        self,
        costs: Costs,
        *,
        rule: str = "arctic",
        model: str | None = None,
        draft_tokens: int | None = None,
        factor: float | None = None,
        offset: float | None = None,
        disable_by_batch_size: int | None = None,
        min_match: int | None = None,
        theta: float | None = None,
        lambda_e: float | None = None,
        lookback: int | None = None,
        alpha: float | None = None,
        theta_score: float | None = None,
        trim: bool = False,
    ) -> None:
        given = {
            "draft_tokens": draft_tokens, "factor": factor, "offset": offset,
            "disable_by_batch_size": disable_by_batch_size, "min_match": min_match,
            "theta": theta, "lambda_e": lambda_e, "lookback": lookback, "alpha": alpha,
            "theta_score": theta_score,
        }  # fmt: skip
        self._rule = _make_rule(rule, {name: v for name, v in given.items() if v is not None})
        self._rule_name = rule
        self._model = model
        self._mode = RuleMode(costs, trim)

    @property
    def name(self) -> str:
        return self._mode.name(f"rules:{self._rule_name}")

    @property
    def needs(self) -> SignalNeeds:
        return self._rule.needs

    def check_setting(self, setting: PolicySetting) -> None:
        """Retrieval must be there, and the model if one is named."""
        named = (self._model,) if self._model is not None else ()
        require_arms(f"rules:{self._rule_name}", (RETRIEVAL, *named), setting)

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        return self._mode.predictions(rows, [self._choice(row, len(rows)) for row in rows])

    def _choice(self, row: RouteRow, batch: int) -> tuple[str, int]:
        model = model_arm(self._model, row)
        budget = self._rule.budget(row, batch, model != NONE)
        if budget is None:
            return NONE, 0
        if budget > 0:
            return RETRIEVAL, min(budget, row.max_nodes)
        return (model, row.max_nodes) if model != NONE else (NONE, 0)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self._rule.observe(outcomes)
        self._mode.observe(outcomes)

    def forget_arm(self, arm: str, weight_hash: str) -> None:  # noqa: ARG002
        self._mode.forget_arm(arm)

    def check_integrity(self) -> None:
        self._mode.check_integrity()


def _make_rule(rule: str, given: Mapping[str, object]) -> Rule:
    if rule not in _RULES:
        raise ConfigError(f"policy 'rules' has no rule {rule!r}; rules are {', '.join(_RULES)}")
    make, known = _RULES[rule]
    for option in given:
        if option not in known:
            raise ConfigError(f"policy 'rules': {option}= does not go with rule={rule}; its "
                              f"options are {', '.join(known)}")  # fmt: skip
    return make(**given)
