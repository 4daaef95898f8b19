"""A policy in another process: asked each step, with a local snapshot for when it is late."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Policy
from whiflash.core.rows import Outcome, Prediction, RouteRow
from whiflash.core.signals import SignalNeeds
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import policy_of
from whiflash.routing.setting import (
    PolicySetting,
    check_setting,
    drafts_all,
    may_rest,
    signal_needs,
)
from whiflash.rpc.access import Access
from whiflash.rpc.convert_routes import outcome_message, read_prediction, row_message
from whiflash.rpc.frames import in_frames
from whiflash.rpc.identity import identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.policy_state import load_policy
from whiflash.rpc.policy_versions import check_remote, digest_of
from whiflash.rpc.router_link import RouterLink
from whiflash.rpc.v1 import router_service_pb2 as pb

logger = logging.getLogger(__name__)
REMOTE, LATE, DOWN = "remote", "late", "down"
LEAST_DEADLINE_S, ROUND_SHARE = 0.001, 0.01
_RATE = 0.05
MAX_VERSIONED = 8192


class RemotePolicy:
    """Implements Policy. deadline_s None: the larger of 1 ms and 1 % of a round.

    text: the policy that decides; with `follows` the router may run another one, and `text` is what
          decides until the first version of that has come.
    decisions: rows by where their prediction came from: remote, late (the snapshot stood in), down.
    version: of the snapshot, 0 before the router has sent one.
    problem: why the router's policy is not used, "" where it is.
    """

    def __init__(
        self,
        text: str,
        loop: RpcLoop,
        address: str,
        curve: CostCurve,
        model_fingerprint: str,
        deadline_s: float | None = None,
        access: Access | None = None,
        follows: bool = False,
    ) -> None:
        check_remote(text)
        self.text = text
        self.problem = ""
        self._setting: PolicySetting | None = None
        self._costs = CostModel(curve)
        self._snapshot: Policy = policy_of(text, self._costs)
        self.version = 0
        self.decisions: Counter[str] = Counter()
        self._deadline_s = deadline_s
        self._round_s = 0.0
        self._last_s = 0.0
        self._round_id = 0
        self._chosen_by: OrderedDict[int, int] = OrderedDict()
        wanted = "" if follows else text
        self.link = RouterLink(
            loop, address, identity(model_fingerprint, ""), wanted, curve, access
        )

    @property
    def name(self) -> str:
        return self._snapshot.name

    @property
    def needs(self) -> SignalNeeds:
        """What the policy asks for that decides now; so are the two below."""
        return signal_needs(self._snapshot)

    @property
    def drafts_all(self) -> bool:
        return drafts_all(self._snapshot)

    @property
    def may_rest(self) -> bool:
        return may_rest(self._snapshot)

    def check_setting(self, setting: PolicySetting) -> None:
        """As the policy itself; those that follow are held against the same."""
        check_setting(self._snapshot, setting)
        self._setting = setting

    @property
    def deadline_s(self) -> float:
        if self._deadline_s is not None:
            return self._deadline_s
        return max(LEAST_DEADLINE_S, ROUND_SHARE * self._round_s)

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        """The router's answer, or the snapshot's where that is late or down."""
        self._note_round()
        self._take_state()
        answer = self._ask(rows) if self.link.is_up and not self.problem else None
        if answer is None:
            self.decisions[LATE if self.link.is_up else DOWN] += len(rows)
            version, predictions = self.version, self._snapshot.predict(rows)
        else:
            self.decisions[REMOTE] += len(rows)
            version, predictions = answer
        for row in rows:
            self._chosen_by[row.sequence_id] = version
        while len(self._chosen_by) > MAX_VERSIONED:
            self._chosen_by.popitem(last=False)
        return predictions

    def _note_round(self) -> None:
        """Rounds follow each other; a pause between two requests is none."""
        now_s = time.perf_counter()
        took_s, self._last_s = now_s - self._last_s, now_s
        if took_s < 10.0:
            self._round_s += _RATE * (took_s - self._round_s)

    def _ask(self, rows: Sequence[RouteRow]) -> tuple[int, list[Prediction]] | None:
        self._round_id += 1
        end_s = time.perf_counter() + self.deadline_s
        for asked in _row_frames(self._round_id, rows):
            self.link.send(asked)
        found: list[Prediction] = []
        while (frame := self._next(end_s)) is not None:
            if frame.round_id == self._round_id:  # else it is of a round that was late
                found += [read_prediction(message) for message in frame.predictions]
                if frame.is_last:
                    return (frame.policy_version, found) if len(found) == len(rows) else None
        return None

    def _next(self, end_s: float) -> pb.RoutePredictions | None:
        link = self.link
        with link.changed:
            while not link.predictions:
                left_s = end_s - time.perf_counter()
                if left_s <= 0 or not link.is_up:
                    return None
                link.changed.wait(left_s)
            return link.predictions.popleft()

    def _take_state(self) -> None:
        """A version that came meanwhile becomes the snapshot."""
        state, self.link.state = self.link.state, None
        if state is None:
            return
        if digest_of(state.data) != state.digest:
            logger.error("version %d of the policy is damaged; the old one stays", state.version)
            return
        policy = load_policy(state.data, self._costs)
        if state.text != self.text and not self._may_follow(policy, state.text):
            return
        self._snapshot, self.version, self.text = policy, state.version, state.text
        self.problem = ""

    def _may_follow(self, policy: Policy, text: str) -> bool:
        """Another policy stands at the router: whether it can work here."""
        try:
            if self._setting is not None:
                check_setting(policy, self._setting)
        except ConfigError as error:
            self.problem = f"the router's policy {text!r} does not fit: {error}"
            logger.error("%s; %r goes on", self.problem, self.text)
            return False
        logger.info("policy %r instead of %r", text, self.text)
        return True

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Sent to the learner. The snapshot learns nothing: it is a version."""
        messages = [
            outcome_message(outcome, self._chosen_by.get(outcome.row.sequence_id, self.version))
            for outcome in outcomes
        ]
        for part in in_frames(messages):
            if part:
                self.link.send(pb.RouteRequest(outcomes=pb.RouteOutcomes(outcomes=part)))

    def observe_shadows(self, outcomes: Sequence[Outcome]) -> None:
        """As `observe`: the learner knows them by their propensity."""
        self.observe(outcomes)

    def forget_arm(self, arm: str, weight_hash: str) -> None:
        """Told to the learner, whose next version knows nothing of it."""
        changed = pb.ArmChange(arm=arm, weight_hash=weight_hash)
        self.link.send(pb.RouteRequest(changed=changed))

    def shut(self) -> None:
        """Ends the stream. Idempotent."""
        self.link.close()


def _row_frames(round_id: int, rows: Sequence[RouteRow]) -> list[pb.RouteRequest]:
    """The rows of one round; the last frame says so."""
    parts = in_frames(row_message(row) for row in rows)
    return [
        pb.RouteRequest(
            rows=pb.RouteRows(round_id=round_id, rows=part, is_last=number == len(parts))
        )
        for number, part in enumerate(parts, start=1)
    ]
