"""How often each arm's drafted tokens came true in a sequence lately: a signal of its rows."""

from __future__ import annotations

_KEEP = 0.75


class RecentRates:
    """Per arm, accepted tokens over accepted and rejected ones, over about the last four rounds
    that verified its drafts. A draft that came true as far as it was verified rejected nothing:
    what lies behind the cut is not known."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def note(self, arm: str, accepted: int, depth: int) -> None:
        """One verified draft of the arm, `depth` tokens deep; 0 for none."""
        if depth > 0:
            hits, trials = self._seen.get(arm, (0.0, 0.0))
            tried = accepted + (accepted < depth)
            self._seen[arm] = _KEEP * hits + accepted, _KEEP * trials + tried

    def rates(self) -> dict[str, float]:
        """By arm, in [0, 1]; arms of which nothing was verified are left out."""
        return {arm: hits / trials for arm, (hits, trials) in self._seen.items()}
