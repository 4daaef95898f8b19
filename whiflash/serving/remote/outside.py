"""Drafters and the policy of a verifier that run in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Drafter, Policy, TapDrafter
from whiflash.drafters.spec import DrafterSpec
from whiflash.rpc.access import Access
from whiflash.rpc.identity import drafter_identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.policy_versions import check_remote
from whiflash.rpc.remote_drafter import RemoteTapDrafter
from whiflash.rpc.remote_policy import RemotePolicy
from whiflash.rpc.v1 import drafter_service_pb2 as pb

NOWHERE = "127.0.0.1:9"
"""Stands for an address that is not known yet: nobody listens there."""


class RemoteParts:
    """Implements OutsideParts. The processes may come, go and come back at other addresses; until
    they are there their arms propose nothing and the policy's snapshot decides.

    drafters: kinds (as `eagle3`) that run elsewhere. has_router: whether the policy does.
    The verifier loads a drafter's weights too: their `fc` makes the fused taps.
    """

    def __init__(
        self, drafters: frozenset[str], has_router: bool, access: Access | None = None
    ) -> None:
        self._kinds = drafters
        self._has_router = has_router
        self._access = access
        self._loop = RpcLoop()
        self._drafters: dict[str, RemoteTapDrafter] = {}
        self._policy: RemotePolicy | None = None
        self._is_closed = False

    def drafter(
        self, spec: DrafterSpec, build: Callable[[], Drafter], model: str, tokenizer: str
    ) -> Drafter | None:
        """Raises ConfigError for a drafter that reads no taps: it belongs into the verifier."""
        if spec.kind not in self._kinds:
            return None
        local = build()
        if not isinstance(local, TapDrafter):
            raise ConfigError(
                f"drafter {spec.kind} reads no taps and takes microseconds; it runs in the "
                "verifier: leave it out of [cluster.drafters]"
            )
        described = pb.DescribeDrafterResponse(
            context_limit=local.context_limit, fused_width=local.fused_width, notes=local.notes
        )
        identity = drafter_identity(local, model, tokenizer)
        remote = RemoteTapDrafter(
            local.name, self._loop, NOWHERE, identity, described, local.fuse, self._access
        )
        self._drafters[spec.kind] = remote
        return remote

    def policy(self, text: str, curve: CostCurve, model: str) -> Policy | None:
        """Raises ConfigError for a policy that no router can run for others."""
        if not self._has_router:
            return None
        check_remote(text)
        self._policy = RemotePolicy(text, self._loop, NOWHERE, curve, model, None, self._access)
        return self._policy

    def locate(self, drafters: Mapping[str, str], router: str | None) -> None:
        """Where they are now; what is not named stays where it was. From any thread."""
        for kind, address in drafters.items():
            if kind in self._drafters:
                self._drafters[kind].link.address = address
        if self._policy is not None and router is not None:
            self._policy.link.address = router

    def describe(self) -> dict[str, object]:
        """Live values, JSON-able: who is up, and whose decisions were taken."""
        drafters = {
            kind: {"is_up": drafter.is_up, "address": drafter.link.address,
                   "late_rounds": drafter.num_late, "resyncs": drafter.num_resyncs}
            for kind, drafter in self._drafters.items()
        }  # fmt: skip
        if self._policy is None:
            return {"drafters": drafters}
        router = {
            "is_up": self._policy.link.is_up,
            "address": self._policy.link.address,
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
