"""What a round missed against the clairvoyant choice at its root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whiflash.core.rows import NONE
from whiflash.routing.costs import CostModel


def regret(
    costs: CostModel,
    choice: tuple[str, int],
    ranks: Mapping[str, Sequence[int]],
    backlog: Mapping[str, int],
) -> float:
    """Share, 0 to 1, of the goodput of the best round at this root that the choice missed, for a
    lone row. Best is what knows the text: of all arms and budgets, and `none`. It looks one round
    ahead; `oracle`, which looks along the whole text, needs every root's proposals.

    choice: arm and nodes verified. ranks: by arm that proposed, rising, the ranks by likelihood of
    its nodes that came true. backlog: tokens that an arm had to absorb, by arm.
    """

    def goodput(arm: str, nodes: int) -> float:
        accepted = sum(rank < nodes for rank in ranks.get(arm, ()))
        return (1 + accepted) / costs.round_ms(arm, nodes, backlog.get(arm, 0))

    cuts = [(arm, rank + 1) for arm, came_true in ranks.items() for rank in came_true]
    own = goodput(*choice)
    best = max(goodput(arm, nodes) for arm, nodes in [(NONE, 0), choice, *cuts])
    return 1.0 - own / best
