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
    recent:  entropies of the last emitted tokens, the latest first (so recent[0] == entropy), as
             many as were asked for and are known; empty where nobody asked.
    agreement: what the target thought of the draft that was verified on the way here: by depth,
             the probability (raw, as `entropy`) of the drafted ids given the draft's path so far,
             along the accepted path first. Empty after a plain round, None where nobody asked.
    """

    entropy: float
    margin: float
    hidden: npt.NDArray[np.float32] | None = None
    recent: tuple[float, ...] = ()
    agreement: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class SignalNeeds:
    """What a policy asks for beyond entropy and margin; nothing else costs anything.

    hidden: Signals.hidden; lookback: entropies in Signals.recent, 0 for none; agreement:
    Signals.agreement.
    """

    hidden: bool = False
    lookback: int = 0
    agreement: bool = False

    def __or__(self, other: SignalNeeds) -> SignalNeeds:
        """What serves both."""
        return SignalNeeds(
            self.hidden or other.hidden,
            max(self.lookback, other.lookback),
            self.agreement or other.agreement,
        )
