"""goodput: what each arm's nodes are worth here and now, learned online.

What it does. It predicts the survival of each arm's nodes and leaves arm and budget to the joint
choice. A prediction is what is expected offline times what is learned online. Offline
(`routing.expected`): the heads of a router file, which read hidden state, entropy, margin, match
length and recent outcomes; without a file the draft's own survival as far as it can be trusted,
and for an arm that has not drafted yet what drafters shipped for this target did on held-out
texts, or a prior that just pays its cost. Online: accepted over
expected tokens, kept per namespace and arm by match-length bucket, entropy bucket and node
rank. Counts decay with each observation and fade with time, so no verdict stands for good. No table
is shared between namespaces; all start from the same prior. Rounds that ended a turn are left out:
their accepted run is cut short; an arm that was not verified teaches by shadow proposals alone (at
roots that chance drew, each for several that it did not), and a draft says
nothing of the nodes it was cut by. An arm that was passed over for long is tried on a few nodes,
within a bounded share of time. One observation moves a factor by a bounded step, a smaller one with
heads; and then, when drafting loses against plain decoding, what was learned online is forgotten.

When it is neutral. Where nothing is drafted it answers nothing and costs nothing; where drafts do
not pay, factors sink until the joint choice takes `none`, the row rests between looks, and only
the exploration floor is spent.

Parameters.
    file: str = "shipped"         router file (`whiflash train router`); the one that comes with
                                  WhiFlash for this target, if there is one; "none" for no heads.
    window: int = 200             observations that a factor remembers.
    prior_tokens: float = 4.0     expected tokens that the prior factor counts for.
    fade_rounds: int = 4000       row-rounds after which unrefreshed evidence counts half.
    explore_after: int = 50       offers passed over, per bucket, before an arm is tried again.
    explore_nodes: int = 4        nodes of such a try.
    explore_share: float = 0.005  share of time that tries may cost.
    max_step: float = 0.5         share by which one observation may move a factor, up or down.
    head_tokens: float = 16.0     as prior_tokens, with heads.
    head_step: float = 0.1        as max_step, with heads.
    max_namespaces: int = 1024    learned tables kept; the longest unused is dropped.

Example. `make_policy("goodput", costs, file="router.safetensors")`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Outcome, Prediction, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.models.shipped import SHIPPED, shipped_drafters, shipped_router
from whiflash.routing.costs import Costs
from whiflash.routing.expected import ExpectedSurvival, Pair
from whiflash.routing.explorer import Explorer
from whiflash.routing.factor_table import (
    NUM_RANK_BUCKETS,
    Cell,
    FactorTable,
    Floats,
    bucket_of,
    rank_buckets,
)
from whiflash.routing.offers import load_of
from whiflash.routing.router_file import RouterFile
from whiflash.routing.setting import PolicySetting
from whiflash.routing.survival import Survival

NO_FILE = "none"
logger = logging.getLogger(__name__)

_MAX_SHADOW_WEIGHT = 4.0
"""One root is one root's luck, however many it stands for: untruncated, a single shadow would
outweigh the prior, and be a sixth of all that is remembered."""


class GoodputPolicy:
    """Survival per arm and node rank, learned online; see the module's docstring."""

    name = "goodput"
    may_rest = True

    def __init__(
        self,
        costs: Costs,
        *,
        file: str = SHIPPED,
        window: int = 200,
        prior_tokens: float = 4.0,
        fade_rounds: int = 4000,
        explore_after: int = 50,
        explore_nodes: int = 4,
        explore_share: float = 0.005,
        max_step: float = 0.5,
        head_tokens: float = 16.0,
        head_step: float = 0.1,
        max_namespaces: int = 1024,
    ) -> None:
        if min(window, fade_rounds, explore_after, explore_nodes, max_namespaces) < 1:
            raise ConfigError("policy 'goodput' needs window, fade_rounds, explore_after, "
                              "explore_nodes and max_namespaces of at least 1")  # fmt: skip
        steps = prior_tokens, max_step, head_tokens, head_step
        if not 0.0 <= explore_share <= 1.0 or min(steps) <= 0.0:
            raise ConfigError("policy 'goodput' needs explore_share in [0, 1], and prior_tokens, "
                              "max_step, head_tokens and head_step above 0")  # fmt: skip
        self._expected = ExpectedSurvival(costs)
        self._explorer = Explorer(costs, explore_after, explore_nodes, explore_share)
        self._table = FactorTable(window, prior_tokens, fade_rounds, max_namespaces, max_step)
        self._steady = head_tokens, head_step
        self._file = file
        self._target = ""
        self._has_hidden = True
        self._longest: dict[str, int] = {}
        self.num_reverts = 0
        if file not in (SHIPPED, NO_FILE):
            self._take(RouterFile.read(Path(file)))

    @property
    def needs(self) -> SignalNeeds:
        """The hidden state where a head reads it."""
        return SignalNeeds(hidden=self._expected.heads is not None and self._has_hidden)

    def _take(self, file: RouterFile) -> None:
        if file.heads is None:
            raise ConfigError(f"policy 'goodput': the router file {self._file} holds no heads; "
                              "train one with `whiflash train router`")  # fmt: skip
        self._target = file.target
        self._expected.take(file.heads)
        self._table.steady(*self._steady)

    def check_setting(self, setting: PolicySetting) -> None:
        """Takes the heads that come with WhiFlash for this target, if no file was named. Those of
        a file must be the target's, and of arms that are there. In a replay rows may lack the
        hidden state."""
        self.take_shipped(setting.fingerprint)
        self._take_shapes(setting)
        self._has_hidden = not setting.is_replay or setting.has_hidden
        heads = self._expected.heads
        if heads is None or setting.is_replay:
            return
        if self._target != setting.fingerprint:
            raise ConfigError(
                f"policy 'goodput': the router belongs to the target {self._target[:12]}, but "
                f"this one is {setting.fingerprint[:12]}; use the router of this target"
            )
        if heads.hidden_size != setting.hidden_size:
            raise ConfigError(f"policy 'goodput': the router reads a hidden state of "
                              f"{heads.hidden_size}, but the target's is {setting.hidden_size}; "
                              "use the router of this target")  # fmt: skip
        if self._file != SHIPPED and not set(heads.names) & set(setting.arms):
            raise ConfigError(f"policy 'goodput': the router knows {', '.join(heads.names)}, but "
                              f"--drafter gives {', '.join(setting.arms) or 'none'}; add "
                              f"{heads.names[0]}, or file=none")  # fmt: skip

    def take_shipped(self, fingerprint: str) -> None:
        """What comes with WhiFlash for that target: how its drafters did, and the heads where no
        file was named. A drafter of the same name from elsewhere begins with the same figures."""
        self._expected.take_found({one.arm: one.positions for one in shipped_drafters(fingerprint)})
        if self._file == SHIPPED and self._expected.heads is None:
            found = shipped_router(fingerprint)
            if found is not None and (file := RouterFile.read(found)).heads is not None:
                self._take(file)

    def _take_shapes(self, setting: PolicySetting) -> None:
        """No arm is expected to draft more than it can, and no head speaks of other trees than
        those that it learned from."""
        self._longest = {arm: shape.max_nodes for arm, shape in setting.shapes.items()}
        heads = self._expected.heads
        for head in heads.arms if heads is not None else ():
            shape = setting.shapes.get(head.arm)
            if head.tree and shape is not None and shape.tree != head.tree:
                logger.warning("the head of arm %s was trained on tree=%s, and it drafts with "
                               "tree=%s: it is off", head.arm, head.tree, shape.tree)  # fmt: skip
                self._expected.leave_out(head.arm)

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        self._explorer.begin_step(load_of(rows))
        fixed: dict[int, tuple[str, int]] = {}
        survival: dict[int, dict[str, Floats]] = {}
        pairs: list[Pair] = []
        for index, row in enumerate(rows):
            offered = self._pairs_of(index, row)
            tried = next((pair for pair in offered if self._is_due(pair)), None)
            if tried is None:
                pairs += offered
            else:
                fixed[index] = tried.cell.arm, min(tried.num_nodes, self._explorer.num_nodes)
        for pair, odds in zip(pairs, self._corrected(pairs), strict=True):
            survival.setdefault(pair.place, {})[pair.cell.arm] = odds[: pair.num_nodes]
        return [Prediction(fixed.get(index), survival.get(index, {})) for index in range(len(rows))]

    def _pairs_of(self, index: int, row: RouteRow) -> list[Pair]:
        pairs: list[Pair] = []
        bucket = bucket_of(row)
        for arm in row.arms:
            if arm == NONE:
                continue
            tree = row.drafts.get(arm)
            most = self._longest.get(arm, row.max_nodes) if tree is None else tree.tokens.size
            nodes = min(row.max_nodes, most)
            if nodes > 0:
                pairs.append(Pair(index, row, Cell(row.namespace, arm, bucket), nodes))
        return pairs

    def _is_due(self, pair: Pair) -> bool:
        return self._explorer.wants(pair.row, pair.cell, pair.num_nodes)

    def _corrected(self, pairs: Sequence[Pair]) -> Floats:
        """float64 [N, K]: survival by rank with what was learned."""
        odds = self._expected.of(pairs)
        factors = self._table.factors([pair.cell for pair in pairs])
        odds *= factors[:, rank_buckets(odds.shape[1])]
        np.minimum(odds, 1.0, out=odds)
        return np.minimum.accumulate(odds, axis=1, out=odds)

    def calibrated(self, arm: str, claims: Survival) -> Survival:
        """Survival by rank of a draft that was not at hand when its arm was chosen."""
        return self._expected.calibrated(arm, claims)

    def revert(self) -> None:
        """Drafting lost against plain decoding: with heads, back to what they were trained to."""
        if self._expected.heads is not None:
            self._table.reset()
            self.num_reverts += 1

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        learned: list[Pair] = []
        accepted: list[int] = []
        for index, outcome in enumerate(outcomes):
            row, drafted = outcome.row, outcome.drafted
            arm = outcome.choice.arm if drafted else NONE
            cell = Cell(row.namespace, arm, bucket_of(row))
            self._explorer.note(row, cell)
            if arm != NONE and not outcome.ended:
                learned.append(Pair(index, row, cell, drafted))
                accepted.append(outcome.accepted)
        if learned:
            self._learn(learned, np.array(accepted))

    def observe_shadows(self, outcomes: Sequence[Outcome]) -> None:
        """Each stands for the roots like it that were not drawn (inverse propensity, truncated)."""
        scored = [outcome for outcome in outcomes if outcome.drafted and not outcome.ended]
        if not scored:
            return
        pairs = [
            Pair(place, o.row, Cell(o.row.namespace, o.choice.arm, bucket_of(o.row)), o.drafted)
            for place, o in enumerate(scored)
        ]
        weights = np.array([min(1.0 / o.propensity, _MAX_SHADOW_WEIGHT) for o in scored])
        self._learn(pairs, np.array([o.accepted for o in scored]), weights)

    def _learn(
        self, pairs: list[Pair], accepted: npt.NDArray[np.int_], weights: Floats | None = None
    ) -> None:
        odds = self._expected.again(pairs)
        ranks = np.arange(odds.shape[1])
        drafted = np.array([pair.num_nodes for pair in pairs])
        odds[ranks >= drafted[:, None]] = 0.0
        seen = (ranks < accepted[:, None]).astype(np.float64)
        # A tree's accepted ranks are not reported: its tokens are spread as they were expected.
        for index, pair in enumerate(pairs):
            if not pair.row.drafts.get(pair.cell.arm, _EMPTY).is_chain:
                seen[index] = odds[index] * (accepted[index] / max(odds[index].sum(), 1e-9))
        per_bucket = np.eye(NUM_RANK_BUCKETS)[rank_buckets(len(ranks))]
        self._table.observe(
            [pair.cell for pair in pairs], odds @ per_bucket, seen @ per_bucket, weights
        )

    def forget_arm(self, arm: str, weight_hash: str) -> None:  # noqa: ARG002
        self._expected.forget_arm(arm)
        self._table.forget_arm(arm)
        self._explorer.forget_arm(arm)

    def describe(self) -> dict[str, Any]:
        """JSON-able: the heads, and how often what was learned online was dropped."""
        learned = self._expected.describe()
        return {"file": self._file, "reverts": self.num_reverts, **learned} if learned else {}

    def check_integrity(self) -> None:
        self._table.check_integrity()


_EMPTY = DraftTree.empty()
