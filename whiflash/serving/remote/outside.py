"""Drafters and the policy of a verifier that run in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from whiflash.core.costs import CostCurve
from whiflash.core.protocols import Drafter, Policy
from whiflash.drafters.spec import DrafterSpec
from whiflash.models.draft.fuse import make_fuse
from whiflash.rpc.access import Access
from whiflash.rpc.following_drafter import FollowingTapDrafter
from whiflash.rpc.identity import identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.policy_versions import check_remote
from whiflash.rpc.remote_policy import RemotePolicy

NOWHERE = "127.0.0.1:9"
"""Stands for an address that is not known yet: nobody listens there."""


class RemoteParts:
    """Implements OutsideParts. The processes may come, go and come back at other addresses; until
    they are there their arms propose nothing and the policy's snapshot decides.

    drafters: kinds (as `eagle3`) that run elsewhere. has_router: whether the policy does.
    device: the target's, where taps are fused; what makes them comes from the drafter's process.
    hold_ms: most that a step waits for their drafts; None is the fixed cost of a verify forward.
    """

    def __init__(
        self,
        drafters: frozenset[str],
        has_router: bool,
        access: Access | None = None,
        device: str = "cpu",
        hold_ms: float | None = None,
    ) -> None:
        self.hold_ms = hold_ms
        self._device = torch.device(device)
        self._kinds = drafters
        self._has_router = has_router
        self._access = access
        self._loop = RpcLoop()
        self._drafters: dict[str, FollowingTapDrafter] = {}
        self._policy: RemotePolicy | None = None
        self._places: dict[str, str] = {}
        self._router_place = NOWHERE
        self._is_closed = False

    def drafter(self, spec: DrafterSpec, model: str, tokenizer: str) -> Drafter | None:
        """Its checkpoint is read by its own process alone."""
        if spec.kind not in self._kinds:
            return None
        remote = FollowingTapDrafter(
            spec.kind, self._loop, self._places.get(spec.kind, NOWHERE), identity(model, tokenizer),
            lambda weights: make_fuse(weights, self._device), self._access,
        )  # fmt: skip
        self._drafters[spec.kind] = remote
        return remote

    def policy(self, text: str, curve: CostCurve, model: str) -> Policy | None:
        """Raises ConfigError for a policy that no router can run for others."""
        if not self._has_router:
            return None
        check_remote(text)
        self._policy = RemotePolicy(
            text, self._loop, self._router_place, curve, model, None, self._access, follows=True
        )
        return self._policy

    def locate(self, drafters: Mapping[str, str], router: str | None) -> None:
        """Where they are now; what is not named stays where it was. From any thread."""
        self._places.update(drafters)
        self._router_place = router or self._router_place
        for kind, address in drafters.items():
            if kind in self._drafters:
                self._drafters[kind].link.address = address
        if self._policy is not None and router is not None:
            self._policy.link.address = router

    @property
    def policy_text(self) -> str:
        """The policy that decides, "" where none runs elsewhere."""
        return "" if self._policy is None else self._policy.text

    def describe(self) -> dict[str, object]:
        """Live values, JSON-able: who is up, and whose decisions were taken."""
        drafters = {
            kind: {"is_up": drafter.is_up, "address": drafter.link.address,
                   "problem": drafter.link.problem, "weight_hash": drafter.weight_hash,
                   "taken_over": drafter.num_taken_over, "expected_ms": drafter.expected_ms,
                   "late_rounds": drafter.num_late, "resyncs": drafter.num_resyncs}
            for kind, drafter in self._drafters.items()
        }  # fmt: skip
        if self._policy is None:
            return {"drafters": drafters}
        router = {
            "is_up": self._policy.link.is_up,
            "address": self._policy.link.address,
            "problem": self._policy.problem or self._policy.link.problem,
            "policy": self._policy.text,
            "version": self._policy.version,
            "decisions": dict(self._policy.decisions),
        }
        return {"drafters": drafters, "router": router}

    def close(self) -> None:
        """Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for drafter in self._drafters.values():
            drafter.shut()
        if self._policy is not None:
            self._policy.shut()
        self._loop.close()
