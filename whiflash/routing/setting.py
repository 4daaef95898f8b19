"""What a policy is to work in: it may refuse before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Policy
from whiflash.core.rows import Outcome
from whiflash.core.shape import DraftShape
from whiflash.core.signals import SignalNeeds
from whiflash.routing.survival import Survival


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """arms: the engine's, without `none`. is_replay: rounds come from a log, which holds no hidden
    state and no probabilities of drafted ids. has_hidden: the hidden states were put beside it.
    shapes: of the arms' drafts, where that is known."""

    arms: tuple[str, ...]
    hidden_size: int
    fingerprint: str
    is_replay: bool = False
    has_hidden: bool = False
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)


@runtime_checkable
class ChoosyPolicy(Protocol):
    """A policy that does not fit every engine."""

    def check_setting(self, setting: PolicySetting) -> None:
        """Raises ConfigError if it cannot work there."""


def check_setting(policy: Policy, setting: PolicySetting) -> None:
    """Raises ConfigError if the policy cannot work in `setting`."""
    if isinstance(policy, ChoosyPolicy):
        policy.check_setting(setting)
    needs = signal_needs(policy)
    if setting.is_replay and needs.hidden and not setting.has_hidden:
        raise ConfigError(
            f"policy {policy.name!r} reads the target's hidden state, which no log holds: it "
            "would tell of the text; give --work-dir with the features, or run an engine with it"
        )
    if setting.is_replay and needs.agreement:
        raise ConfigError(
            f"policy {policy.name!r} reads probabilities of drafted ids, which a log holds for no "
            "draft that was not verified; give it reward=efficiency, or run an engine with it"
        )


@runtime_checkable
class ShippedPolicy(Protocol):
    """A policy that begins with what comes with WhiFlash for a target."""

    def take_shipped(self, fingerprint: str) -> None:
        """Unless a file was named. Raises ConfigError where it cannot do without."""


def take_shipped(policy: Policy, fingerprint: str) -> None:
    """As `check_setting` does it too, where the target is known and its engine is elsewhere."""
    if isinstance(policy, ShippedPolicy):
        policy.take_shipped(fingerprint)


def signal_needs(policy: Policy) -> SignalNeeds:
    """What the policy declares in its attribute `needs`; nothing where it has none."""
    needs = getattr(policy, "needs", None)
    return needs if isinstance(needs, SignalNeeds) else SignalNeeds()


def drafts_all(policy: Policy) -> bool:
    """Whether every arm shall propose at every root (attribute `drafts_all`), for a log."""
    return bool(getattr(policy, "drafts_all", False))


def may_rest(policy: Policy) -> bool:
    """Whether rows that draft nothing may be looked at less often (attribute `may_rest`): not
    where the policy is a published rule that is asked every round."""
    return bool(getattr(policy, "may_rest", False))


@runtime_checkable
class ForgetfulPolicy(Protocol):
    """A policy that learns of arms."""

    def forget_arm(self, arm: str, weight_hash: str) -> None:
        """From now on the arm's drafts are made with other weights: what was learned of it says
        nothing. Calls with the same hash may come again."""


def forget_arm(policy: Policy, arm: str, weight_hash: str) -> None:
    """Nothing for a policy that learns nothing of arms."""
    if isinstance(policy, ForgetfulPolicy):
        policy.forget_arm(arm, weight_hash)


@runtime_checkable
class ShadowPolicy(Protocol):
    """A policy that learns from proposals that nobody verified."""

    def observe_shadows(self, outcomes: Sequence[Outcome]) -> None:
        """At roots that were drawn by chance, with `Outcome.propensity`; the text scored them."""


def observe_shadows(policy: Policy, outcomes: Sequence[Outcome]) -> None:
    """Nothing for a policy that learns only from what it chose."""
    if isinstance(policy, ShadowPolicy):
        policy.observe_shadows(outcomes)


@runtime_checkable
class LearnedPolicy(Protocol):
    """A policy that learned offline what it corrects online."""

    def calibrated(self, arm: str, claims: Survival) -> Survival:
        """What a draft's own survival by rank is worth."""

    def revert(self) -> None:
        """Drafting lost against plain decoding: back to what was learned offline."""

    def describe(self) -> dict[str, Any]:
        """JSON-able; empty where nothing was learned."""


def calibration(policy: Policy) -> Callable[[str, Survival], Survival] | None:
    """How to read the survival that drafts claim; None where it is taken as it is."""
    return policy.calibrated if isinstance(policy, LearnedPolicy) else None


def revert(policy: Policy) -> None:
    """Nothing for a policy that learned nothing offline."""
    if isinstance(policy, LearnedPolicy):
        policy.revert()


def describe_policy(policy: Policy) -> dict[str, Any]:
    """What the plan shows of it."""
    return policy.describe() if isinstance(policy, LearnedPolicy) else {}


def require_arms(policy: str, wanted: tuple[str, ...], setting: PolicySetting) -> None:
    """Raises ConfigError if an arm that the policy's options name is not there."""
    missing = [arm for arm in wanted if arm not in setting.arms and arm != "none"]
    if missing:
        raise ConfigError(
            f"policy {policy!r} chooses {' or '.join(wanted)}, but --drafter gives "
            f"{', '.join(setting.arms) or 'none'}; add {missing[0]} or name another arm"
        )
