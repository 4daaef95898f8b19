"""A policy led along logged texts: it chooses, the log says what came of it, the costs what it
took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from whiflash.core.protocols import Policy
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow, StepCost
from whiflash.routing.recent import RecentRates
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.replay.turns import Root, Turn
from whiflash.routing.router import Router

_NAMESPACE = "replay"


@dataclass(slots=True)
class Walk:
    """What a policy came to.

    censored: by reason, roots at which the log does not say what the choice would have brought:
    "arm" (that arm was not proposed there), "root" (no round began there). Nothing of them counts;
    the walk goes on at the next logged root. skipped: the tokens between.
    """

    policy: str
    rounds: int = 0
    emitted: int = 0
    ending_rounds: int = 0
    ending_emitted: int = 0
    total_ms: float = 0.0
    switches: int = 0
    skipped: int = 0
    arm_rounds: Counter[str] = field(default_factory=Counter)
    censored: Counter[str] = field(default_factory=Counter)

    @property
    def goodput(self) -> float:
        """Tokens per second."""
        return 1e3 * self.emitted / self.total_ms if self.total_ms > 0.0 else 0.0

    @property
    def accepted_length(self) -> float:
        """Tokens per round, over rounds that do not end the turn; 0 where there is none."""
        rounds = self.rounds - self.ending_rounds
        return (self.emitted - self.ending_emitted) / rounds if rounds else 0.0

    def note(self, arm: str, emitted: int, ms: float, ended: bool) -> None:
        """One round."""
        self.rounds += 1
        self.emitted += emitted
        self.total_ms += ms
        self.arm_rounds[arm] += 1
        self.ending_rounds += ended
        self.ending_emitted += emitted if ended else 0

    def skip(self, reason: str, tokens: int) -> None:
        """A root that cannot be scored."""
        self.censored[reason] += 1
        self.skipped += tokens


class Walker:
    """One policy on one run, a lone row at a time, through the router as the engine calls it."""

    def __init__(self, run: LoggedRun, policy: Policy, walk: Walk) -> None:
        self._run = run
        self._costs = run.costs
        self._router = Router(policy, run.costs, plain_share=0.0)
        self._walk = walk
        self._absorbed: dict[str, int] = {}
        self._recent = RecentRates()
        self._arm: str | None = None

    def follow(self, turn: Turn) -> None:
        """Along the whole text."""
        self._absorbed, self._arm, self._recent = {}, None, RecentRates()
        position = turn.first
        while position < turn.last:
            root = turn.roots.get(position)
            position = (
                self._skip("root", turn, position, turn.next_root(position))
                if root is None
                else self._round(turn, position, root)
            )
        self._router.forget(turn.sequence)

    def _skip(self, reason: str, turn: Turn, position: int, behind: int) -> int:
        self._walk.skip(reason, min(behind, turn.last) - position)
        return behind

    def _round(self, turn: Turn, position: int, root: Root) -> int:
        row = self._row(turn, position, root)
        (choice,) = self._router.choose([row], 0)
        proposal = root.known(choice.arm)
        if choice.arm != NONE and proposal is None:
            return self._skip("arm", turn, position, position + root.emitted)
        nodes, accepted = 0, 0
        if proposal is not None:
            (tree,) = self._router.trim([proposal.tree()], [choice], 0)
            nodes, accepted = len(tree), proposal.accepted(len(tree))
            self._recent.note(choice.arm, accepted, nodes)
        emitted = min(accepted + 1, turn.last - position)
        self._pay(row, choice, nodes, emitted, position + emitted == turn.last)
        if choice.arm != NONE:
            self._absorbed[choice.arm] = position
        return position + emitted

    def _row(self, turn: Turn, position: int, root: Root) -> RouteRow:
        free = self._run.free
        return RouteRow(
            sequence_id=turn.sequence,
            namespace=_NAMESPACE,
            signals=root.signals,
            arms=(NONE, *free),
            drafts={arm: p.tree() for arm, p in root.proposals.items() if free.get(arm)},
            matched=root.matched,
            max_nodes=root.max_nodes,
            context_tokens=position + 1,
            backlog={
                arm: position - self._absorbed.get(arm, 0)
                for arm, is_free in free.items()
                if not is_free
            },
            recent_rates=self._recent.rates(),
        )

    def _pay(self, row: RouteRow, choice: Choice, nodes: int, emitted: int, ended: bool) -> None:
        """Free arms propose at every root, whatever is chosen."""
        backlog = row.backlog.get(choice.arm, 0)
        others = [arm for arm in row.drafts if arm != choice.arm]
        aside = sum(self._costs.draft_ms(arm, 1) for arm in others)
        ms = self._costs.round_ms(choice.arm, nodes, backlog) + aside
        arm = choice.arm if nodes else NONE
        self._walk.switches += self._arm not in (None, arm)
        self._arm = arm
        self._walk.note(arm, emitted, ms, ended)
        step = StepCost(
            tokens=1 + nodes,
            verify_ms=self._costs.verify_ms(1 + nodes),
            draft_ms={},
            total_ms=ms,
            emitted=emitted,
            was_plain=nodes == 0,
            was_decode_only=True,
        )
        outcome = Outcome(row, choice, nodes, emitted - 1, emitted, ended)
        self._router.observe([outcome], step)
