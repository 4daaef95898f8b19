"""A router's policy: versions that stand still, and a learner that makes the next one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import Outcome, Prediction, RouteRow
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import check_policy, policy_of
from whiflash.routing.setting import forget_arm, observe_shadows, take_shipped
from whiflash.rpc.channels import MAX_FRAME_BYTES
from whiflash.rpc.policy_state import dump_policy, load_policy
from whiflash.rpc.v1 import router_service_pb2 as pb

_PART_BYTES = MAX_FRAME_BYTES // 2
_OWN_CHOICES = ("bandit",)


class PolicyVersions:
    """Version n answers until n + 1 is published, `publish_outcomes` outcomes later. The learner
    sees each outcome's row as a prediction first, as a policy inside an engine does.

    Costs are those of the first verifier's target at load: they are part of every version, so that
    both ends of a link weigh alike. For one thread.
    """

    def __init__(
        self,
        text: str,
        curve: CostCurve,
        publish_outcomes: int,
        target: str,
        last_number: int = 0,
    ) -> None:
        """target: fingerprint, for what comes with WhiFlash for it. last_number: of the policy
        before; this one's versions count on. Raises ConfigError where the policy lacks a file."""
        self.text = text
        self.curve = curve
        self.target = target
        self._costs = CostModel(curve)
        self._learner = policy_of(text, self._costs)
        take_shipped(self._learner, target)
        self._publish_outcomes = publish_outcomes
        self._num_learned = 0
        self.number = last_number
        self.num_outcomes = 0
        self.publish()

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        """By the version that stands."""
        return self._standing.predict(rows)

    def learn(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether a new version came of it. Outcomes of roots that were drawn by chance are shadow
        proposals'."""
        rounds = [outcome for outcome in outcomes if outcome.propensity >= 1.0]
        shadows = [outcome for outcome in outcomes if outcome.propensity < 1.0]
        if rounds:
            self._learner.predict([outcome.row for outcome in rounds])
            self._learner.observe(rounds)
        observe_shadows(self._learner, shadows)
        self.num_outcomes += len(outcomes)
        if self.num_outcomes - self._num_learned < self._publish_outcomes:
            return False
        self.publish()
        return True

    def forget_arm(self, arm: str, weight_hash: str) -> None:
        """What was learned of it says nothing about other weights: a new version."""
        forget_arm(self._learner, arm, weight_hash)
        self.publish()

    def publish(self) -> None:
        """The learner's state becomes the next version."""
        self._num_learned = self.num_outcomes
        self.number += 1
        self.data = dump_policy(self._learner)
        self._standing = load_policy(self.data, self._costs)

    def parts(self) -> list[pb.RouteResponse]:
        """The version that stands, in frames."""
        pieces = [self.data[at : at + _PART_BYTES] for at in range(0, len(self.data), _PART_BYTES)]
        digest = digest_of(self.data)
        return [
            pb.RouteResponse(
                policy=pb.PolicyPart(
                    policy_version=self.number, data=piece, is_last=place == len(pieces),
                    digest=digest, policy=self.text,
                )
            )
            for place, piece in enumerate(pieces, start=1)
        ]  # fmt: skip


def check_remote(text: str) -> None:
    """Raises ConfigError for a policy that no router can run for others."""
    spec = check_policy(text)
    if spec.name in _OWN_CHOICES:
        raise ConfigError(
            f"policy {spec.name!r} learns within each query from its own last choice, which no "
            "published version knows; run it in the verifier, or take goodput with a router"
        )


def digest_of(data: bytes) -> bytes:
    """16 bytes that name a state."""
    return hashlib.blake2b(data, digest_size=16).digest()
