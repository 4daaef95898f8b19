"""What the target knows about a sequence at its root, for free, when an arm is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals at the new root, from the row that the root was taken from.

    entropy: nats of the raw next-token distribution (temperature 1, no filters).
    margin:  probability of the most likely id minus that of the second.
    hidden:  float32 [h], the target's final hidden state, or None where nobody asked for it.
    """

    entropy: float
    margin: float
    hidden: npt.NDArray[np.float32] | None = None
