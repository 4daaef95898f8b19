"""Drafters elsewhere that came back with other weights, taken over between two rounds."""

from __future__ import annotations

import logging

from whiflash.core.protocols import Target
from whiflash.engine.arms import Arms
from whiflash.engine.guard import GuardedTapDrafter
from whiflash.routing.router import Router

logger = logging.getLogger(__name__)


class Swaps:
    """The target itself is not touched: from here on its caches keep other fused taps. A sequence
    that runs has taps from here on only, and the drafter begins with these: a matter of speed.

    num_done: drafters that were taken over, the first ones included.
    """

    def __init__(self, arms: Arms, target: Target, router: Router) -> None:
        self._arms = arms
        self._target = target
        self._router = router
        self.num_done = 0

    def run(self) -> None:
        """Before a step."""
        for name, drafter in self._arms.tap_drafters.items():
            old = drafter.weight_hash
            if drafter.take_over():
                self._swap(name, drafter, old)

    def _swap(self, name: str, drafter: GuardedTapDrafter, old: str) -> None:
        self.num_done += 1
        self._arms.memory.forget_arm(name)
        if old:
            self._router.forget_arm(name, drafter.weight_hash)
        others = {d.weight_hash for d in self._arms.tap_drafters.values()}
        if old and old not in others:
            self._target.drop_taps(old)
        drafter.attach(self._target)
        logger.info("%s has weights %s now, before %s", name, drafter.weight_hash, old or "none")
