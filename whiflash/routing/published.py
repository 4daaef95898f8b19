"""Published rules between retrieval and a drafting model, for the policy `rules`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whiflash.core.errors import ConfigError
from whiflash.core.rows import Outcome, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.routing.bounded import Bounded
from whiflash.routing.paradigms import RETRIEVAL, found
from whiflash.routing.survival import ranked

_MIN_SURVIVAL = 0.1
_FIRST_SCORE = 0.5
_MAX_SCORES = 65536
_CANDIDATE_TOKENS = 4


@dataclass(slots=True)
class Arctic:
    """ArcticInference, `propose_draft_token_ids` of its vLLM plugin and docs/suffix-decoding."""

    draft_tokens: int = 3
    factor: float = 1.0
    offset: float = 0.0
    disable_by_batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.draft_tokens < 1 or self.factor < 0.0:
            raise ConfigError("policy 'rules': arctic needs draft_tokens of at least 1 and a "
                              f"factor of at least 0, got {self.draft_tokens} and "
                              f"{self.factor}")  # fmt: skip

    @property
    def needs(self) -> SignalNeeds:
        return SignalNeeds()

    def budget(self, row: RouteRow, batch: int, has_model: bool) -> int | None:
        """See `policies.rules.Rule`. Without a model the score need not reach anything."""
        if self.disable_by_batch_size is not None and batch > self.disable_by_batch_size:
            return None
        if not found(row, RETRIEVAL):
            return 0
        odds = ranked([row.drafts[RETRIEVAL]])[0]
        length = max(int(self.factor * row.matched + self.offset), 0)
        kept = odds[: min(length, row.max_nodes)]
        kept = kept[kept >= _MIN_SURVIVAL]
        least = self.draft_tokens if has_model else 0
        return len(kept) if float(kept.sum()) >= least else 0

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class TensorRT:
    """TensorRT-LLM, SADecodingConfig: the automaton overrides the model behind a long match."""

    min_match: int = 4

    def __post_init__(self) -> None:
        if self.min_match < 1:
            raise ConfigError(
                f"policy 'rules': trtllm needs a min_match of at least 1, got {self.min_match}"
            )

    @property
    def needs(self) -> SignalNeeds:
        return SignalNeeds()

    def budget(self, row: RouteRow, batch: int, has_model: bool) -> int | None:
        """See `policies.rules.Rule`."""
        del batch, has_model
        is_long = row.matched >= self.min_match and found(row, RETRIEVAL)
        return row.max_nodes if is_long else 0

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""


Candidate = tuple[str, int]


@dataclass(slots=True)
class ReSpec:
    """ReSpec, arXiv 2511.01282: when (Algorithm 1) and what to retrieve; its relaxed verification
    is left out. A draft is as long as its candidate's score is good."""

    theta: float = 1.5
    lambda_e: float = 1.0
    lookback: int = 3
    alpha: float = 0.3
    theta_score: float = 0.5
    scores: Bounded[Candidate, float] = field(default_factory=lambda: Bounded(_MAX_SCORES))

    def __post_init__(self) -> None:
        if self.lookback < 1 or not 0.0 < self.alpha <= 1.0 or self.lambda_e < 0.0:
            raise ConfigError(
                "policy 'rules': respec needs a lookback of at least 1, alpha in (0, 1] and a "
                f"lambda_e of at least 0, got {self.lookback}, {self.alpha} and {self.lambda_e}"
            )

    @property
    def needs(self) -> SignalNeeds:
        return SignalNeeds(lookback=self.lookback)

    def mean_entropy(self, recent: Sequence[float]) -> float:
        """H_{k*}: the mean over the k latest tokens, at the k of least H_k + lambda_e / k. NaN
        where the latest is no number; what lies behind a NaN is not looked at."""
        best = (math.inf, math.nan)
        total = 0.0
        for k, entropy in enumerate(recent[: self.lookback], start=1):
            total += entropy
            if math.isfinite(total):
                best = min(best, (total / k + self.lambda_e / k, total / k))
        return best[1]

    def budget(self, row: RouteRow, batch: int, has_model: bool) -> int | None:
        """See `policies.rules.Rule`."""
        del batch, has_model
        recent = row.signals.recent or (row.signals.entropy,)
        if not found(row, RETRIEVAL) or not self.mean_entropy(recent) <= self.theta:
            return 0
        score = self.score(row)
        return math.ceil(score * row.max_nodes) if score >= self.theta_score else 0

    def score(self, row: RouteRow) -> float:
        """S of the row's candidate."""
        return self.scores.get(_candidate(row), lambda: _FIRST_SCORE)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """S <- (1 - alpha) S + alpha * accepted / proposed, after each use."""
        for outcome in outcomes:
            was_used = outcome.choice.arm == RETRIEVAL and outcome.drafted > 0
            if was_used and not outcome.ended and RETRIEVAL in outcome.row.drafts:
                share = min(outcome.accepted / outcome.drafted, 1.0)
                score = (1.0 - self.alpha) * self.score(outcome.row) + self.alpha * share
                self.scores.put(_candidate(outcome.row), float(np.clip(score, 0.0, 1.0)))


def _candidate(row: RouteRow) -> Candidate:
    """A match position is known by what follows it, as a hash: no text is kept."""
    tree = row.drafts[RETRIEVAL]
    return row.namespace, hash((tree.source, tree.tokens[:_CANDIDATE_TOKENS].tobytes()))
