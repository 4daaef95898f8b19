"""Which keys the slots of a block see in one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class LayerSight:
    """All slots see all of the context and of the block, unless one of these says otherwise.

    is_causal:     a slot sees no later slot.
    window_tokens: a slot at p sees keys within p - k < window (and k - p < window).
    is_anchored:   the window counts from the root instead and leaves the block whole: context
                   keys k >= root - window, for every slot alike (how speculators trains).
    """

    is_causal: bool = False
    window_tokens: int | None = None
    is_anchored: bool = False

    def first_visible(self, root: int) -> int:
        """The earliest position that any slot of the block at position `root` sees."""
        if self.window_tokens is None:
            return 0
        return max(root - self.window_tokens + int(not self.is_anchored), 0)

    def mask(self, first: int, root: int, num_slots: int) -> npt.NDArray[np.bool_] | None:
        """bool [num_slots, root + num_slots - first], True where the slot at position root + i
        sees position first + j; None where every slot sees all of them."""
        keys = np.arange(first, root + num_slots)
        slots = np.arange(root, root + num_slots)[:, None]
        is_seen = np.ones((num_slots, len(keys)), bool)
        if self.is_causal:
            is_seen &= keys <= slots
        if self.window_tokens is not None and self.is_anchored:
            is_seen &= keys >= root - self.window_tokens
        elif self.window_tokens is not None:
            is_seen &= np.abs(slots - keys) < self.window_tokens
        return None if is_seen.all() else is_seen
