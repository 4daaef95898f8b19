"""The exploration floor: what is passed over is tried again, within a share of the time."""

from __future__ import annotations

from whiflash.core.rows import NONE, RouteRow
from whiflash.routing.costs import Costs
from whiflash.routing.factor_table import Cell

_MAX_CELLS = 65536


class Explorer:
    """Counts, per namespace, arm and bucket, the offers that were passed over.

    after:  offers passed over in a row before the arm is due.
    nodes:  draft nodes of a try.
    share:  tries may cost at most this share of verify time: each step earns share * its cost,
            and a try is made when its own extra cost has been earned.
    """

    def __init__(self, costs: Costs, after: int, nodes: int, share: float) -> None:
        self.num_nodes = nodes
        self.num_tries = 0
        self._costs = costs
        self._after = after
        self._share = share
        self._earned_ms = 0.0
        self._dearest_ms = 0.0
        self._rows = 1
        self._passed: dict[Cell, int] = {}

    def begin_step(self, num_rows: int) -> None:
        self._rows = max(num_rows, 1)
        earned = self._share * self._costs.plain_ms(self._rows)
        # Savings are capped at the dearest try, or a quiet hour would pay for a burst of them.
        self._earned_ms = min(self._earned_ms + earned, self._dearest_ms)

    def _try_ms(self, arm: str) -> float:
        table = self._costs.verify_table(self._rows, self.num_nodes + 1)
        return float(table[-1] - table[0]) + self._costs.draft_ms(arm, 1)

    def wants(self, row: RouteRow, cell: Cell, num_nodes: int) -> bool:
        """Whether this row should try the cell's arm now; if so the try is paid."""
        if num_nodes == 0 or self._share == 0.0 or self._passed.get(cell, 0) < self._after:
            return False
        price_ms = self._try_ms("" if cell.arm in row.drafts else cell.arm)
        self._dearest_ms = max(self._dearest_ms, price_ms)
        if price_ms > self._earned_ms:
            return False
        self._earned_ms -= price_ms
        self._passed[cell] = 0
        self.num_tries += 1
        return True

    def forget_arm(self, arm: str) -> None:
        """It is due at once, as one that was passed over for long."""
        for cell in [cell for cell in self._passed if cell.arm == arm]:
            self._passed[cell] = self._after

    def note(self, row: RouteRow, taken: Cell) -> None:
        """The arm of `taken` (or NONE) is what the row drafted with; its other offers were passed
        over."""
        if len(self._passed) > _MAX_CELLS:
            self._passed.clear()
        for arm in row.arms:
            if arm == NONE or (arm in row.drafts and row.drafts[arm].tokens.size == 0):
                continue
            cell = Cell(row.namespace, arm, taken.bucket)
            self._passed[cell] = 0 if arm == taken.arm else self._passed.get(cell, 0) + 1
