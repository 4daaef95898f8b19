"""Parts of an engine that run in other processes, injected by whoever knows the way to them."""

from __future__ import annotations

from typing import Protocol

from whiflash.core.costs import CostCurve
from whiflash.core.protocols import Drafter, Policy
from whiflash.drafters.spec import DrafterSpec


class OutsideParts(Protocol):
    """Asked while an engine is built, on its thread.

    hold_ms: most that a step waits for drafts made elsewhere; None is the fixed cost of a verify
    forward.
    """

    hold_ms: float | None

    def drafter(self, spec: DrafterSpec, model: str, tokenizer: str) -> Drafter | None:
        """What stands for the drafter of `spec`; None where it runs here. model, tokenizer:
        fingerprints of the target's."""

    def policy(self, text: str, curve: CostCurve, model: str) -> Policy | None:
        """What stands for the policy that `text` names; None where it runs here."""

    def close(self) -> None:
        """After the last round. Idempotent."""
