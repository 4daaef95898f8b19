"""The records that drafters and policies see of a sequence in a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.signals import Signals

if TYPE_CHECKING:
    import torch

NONE = "none"


@dataclass(frozen=True, slots=True)
class DraftSampling:
    """How the target will choose the next tokens of a row, for drafters that apply the same to
    their own logits (design.md 5). It can help a draft, never change the text.

    temperature > 0; top_k 0, top_p 1 and min_p 0 are off. key: the secret of the row's noise key.
    index: number of the generated token that a draft node of depth 1 stands for.
    """

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    key: bytes = field(default=b"", repr=False)
    index: int = 0


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One sequence that a drafter is asked to draft for.

    context: int32 [S + 1], all ids of the sequence, the root last. A view: do not keep it.
    max_nodes, max_depth: what the target will verify at most (>= 1).
    sampling: None where the target takes its argmax (temperature 0).
    """

    sequence_id: int
    namespace: str
    context: npt.NDArray[np.int32]
    max_nodes: int
    max_depth: int
    sampling: DraftSampling | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CatchUp:
    """Committed positions [start, start + n) of one sequence for a drafter to absorb.

    token_ids: int32 [n + 1], ids of the positions start to start + n: the last one follows the
               range (the root, where the range ends at S).
    fused:     [n, fused width], the drafter's own `fuse` of the taps of those positions.
    is_window_start: the drafter shall forget what it holds and see nothing before `start`;
               without it `start` is what `absorbed` says.
    """

    sequence_id: int
    start: int
    token_ids: npt.NDArray[np.int32]
    fused: torch.Tensor
    is_window_start: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """What became of a proposal: scored against the text that came after its root.

    `followed` holds the tokens that the target emitted from the root on, at least as many as
    were needed to score, fewer if the turn ended. Nodes behind a rejection are censored.
    `verified` is False for a shadow proposal (scored later, never verified).
    """

    row: DraftRow
    tree: DraftTree
    followed: tuple[int, ...]
    verified: bool


@dataclass(frozen=True, slots=True)
class RouteRow:
    """One sequence at its root, as a policy sees it.

    drafts:  proposals that were free to make, by arm (retrieval); an empty tree = nothing found.
    arms:    eligible arms, `none` always among them.
    matched: length of the context suffix that retrieval found, in tokens; 0 for none.
    backlog: tokens that an arm must absorb before it can draft, by arm; absent for none.
    load:    decoding rows of the step, this one and those that have no choice to make included.
    recent_rates: by arm, the share of its drafted tokens that came true in this sequence lately;
             absent for an arm of which nothing was verified.
    """

    sequence_id: int
    namespace: str
    signals: Signals
    arms: tuple[str, ...]
    drafts: Mapping[str, DraftTree]
    matched: int = 0
    max_nodes: int = 0
    context_tokens: int = 0
    backlog: Mapping[str, int] = field(default_factory=dict)
    load: int = 1
    recent_rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A policy's answer for one row: either `fixed` (arm, budget in nodes), which `assign` only
    checks, or `survival` per arm: float [k], probability that the j-th most likely node of that
    arm's draft is accepted (non-increasing), from which `assign` chooses jointly."""

    fixed: tuple[str, int] | None = None
    survival: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a row does this round: the arm and the most nodes it may verify.

    is_fixed: the policy asked for exactly this; trim keeps the budget and prices nothing.
    survival: float64 [>= budget], non-increasing, the policy's estimate per node rank that the
              budget was chosen along; trim prices with it instead of the tree's own. None where
              the draft was not at hand yet.
    """

    arm: str
    budget: int
    is_fixed: bool = False
    survival: npt.NDArray[np.float64] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a row's round brought, for learning. `emitted` counts the target's own token.

    `ended`: the round ended the turn (its accepted count is cut short, so it is censored).
    `propensity`: probability with which the root was drawn for a shadow proposal, which was scored
    and never verified; 1 for a round that was run.
    """

    row: RouteRow
    choice: Choice
    drafted: int
    accepted: int
    emitted: int
    ended: bool
    propensity: float = 1.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """Measured times of one engine step, milliseconds. `tokens` is the forward's row count.

    catch_up: by arm, tokens absorbed and what that took; draft_ms does not hold it.
    was_pinned: a row drafted with the arm that its request asked for, so that the step says
                nothing of the router's choices.
    num_looked: rows that had signals and proposals; look_ms: what these and the choice took, free
                drafts included and others not.
    """

    tokens: int
    verify_ms: float
    draft_ms: Mapping[str, float]
    total_ms: float
    emitted: int
    was_plain: bool
    was_decode_only: bool
    catch_up: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    was_pinned: bool = False
    num_looked: int = 0
    look_ms: float = 0.0

    @property
    def was_bare(self) -> bool:
        """Whether it did what a server without drafting does, and nothing else."""
        return self.was_plain and self.num_looked == 0
