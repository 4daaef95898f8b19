"""Off for a while when drafting loses against plain decoding; never for good."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.core.rows import StepCost
from whiflash.routing.price import Price, load_bucket


@dataclass(slots=True)
class _Hold:
    steps_left: int = 0
    next_steps: int = 0
    num_trips: int = 0


class FallBack:
    """Per load bucket: plain steps only, after drafting steps yielded less than `floor` x plain.

    Judged on steps that drafted (a step without a draft cannot lose by drafting), after at least
    `min_steps` of them. A hold lasts `first_steps` steps at that load, then drafting is tried
    again from a clean average; each trip in a row doubles the hold up to `max_steps`, a healthy
    stretch makes it short again. So drafting is retried for ever, in at most
    min_steps / max_steps of the steps while it keeps losing.
    """

    def __init__(
        self,
        price: Price,
        *,
        floor: float = 0.98,
        min_steps: int = 32,
        first_steps: int = 32,
        max_steps: int = 256,
    ) -> None:
        self._price = price
        self._floor = floor
        self._min_steps = min_steps
        self._first_steps = first_steps
        self._max_steps = max_steps
        self._holds: dict[int, _Hold] = {}

    def is_active(self, rows: int) -> bool:
        hold = self._holds.get(load_bucket(rows))
        return hold is not None and hold.steps_left > 0

    def observe(self, step: StepCost, rows: int) -> bool:
        """After `Price.observe` of the same step. Whether a hold begins."""
        if not step.was_decode_only or rows <= 0:
            return False
        hold = self._holds.setdefault(load_bucket(rows), _Hold(next_steps=self._first_steps))
        if hold.steps_left > 0:
            hold.steps_left -= 1
            return False
        return self._judge(hold, rows)

    def _judge(self, hold: _Hold, rows: int) -> bool:
        drafted = self._price.load(rows).drafted
        if drafted.num_added < self._min_steps:
            return False
        if drafted.value < self._floor:
            hold.num_trips += 1
            hold.steps_left = hold.next_steps
            hold.next_steps = min(2 * hold.next_steps, self._max_steps)
            drafted.reset()
            return True
        if drafted.num_added >= 2 * self._min_steps:
            hold.next_steps = self._first_steps
        return False

    def describe(self) -> dict[str, dict[str, int]]:
        return {
            str(1 << bucket): {"steps_left": hold.steps_left, "trips": hold.num_trips}
            for bucket, hold in sorted(self._holds.items())
        }

    def check_integrity(self) -> None:
        for hold in self._holds.values():
            assert 0 <= hold.steps_left <= self._max_steps
            assert self._first_steps <= hold.next_steps <= self._max_steps
