"""The joint choice: an arm and a budget for every row of a step (design.md 7).

What is maximised is sum(expected emitted) - price * milliseconds, not their ratio: with the price
at the slow average of the rate itself, the plan that maximises the difference is the one that
maximises the rate in the long run (renewal reward), while the best ratio of a single step would
favour a cheap step over one that moves more tokens. Everything is counted relative to the plain
step, whose value is 0, so `none` wins every tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from whiflash.core.rows import NONE, Choice, Prediction, RouteRow
from whiflash.routing.costs import Costs, MsArray
from whiflash.routing.offers import Offers, extra_verify_ms

PLAIN = Choice(NONE, 0)
_TIE = 1e-9
_MAX_NODE_PRICES = 16
_MAX_PLANS = 2
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Plan:
    """arm_of: int [R], index into the offers' arms, -1 for none; budgets: int [R] nodes;
    value: tokens gained over the plain step, costs paid."""

    arm_of: Ints
    budgets: Ints
    value: float


def assign(
    rows: Sequence[RouteRow],
    predictions: Sequence[Prediction],
    costs: Costs,
    price: float,
    base_tokens: int,
) -> list[Choice]:
    """One choice per row, in order.

    price:       lambda, tokens per millisecond.
    base_tokens: rows of the forward that are there anyway: a root per decode row, and prefill.
    A fixed prediction passes with its budget cut to the row's limits. An arm that the row no longer
    has counts as `none`: eligibility may change between prediction and choice.
    """
    choices = fixed_choices(rows, predictions)
    base = base_tokens + sum(choice.budget for choice in choices)
    offers = Offers.of(rows, predictions)
    apply_plan(offers, plan(offers, costs, price, base), choices)
    return choices


def fixed_choices(rows: Sequence[RouteRow], predictions: Sequence[Prediction]) -> list[Choice]:
    """The fixed rows' choices; PLAIN, to be decided, for the others."""
    return [_fixed_choice(row, p) for row, p in zip(rows, predictions, strict=True)]


def _fixed_choice(row: RouteRow, prediction: Prediction) -> Choice:
    if prediction.fixed is None:
        return PLAIN
    arm, budget = prediction.fixed
    budget = min(budget, row.max_nodes)
    if arm == NONE or arm not in row.arms or budget <= 0:
        return Choice(NONE, 0, is_fixed=True)
    return Choice(arm, budget, is_fixed=True)


def apply_plan(offers: Offers, chosen: Plan, choices: list[Choice]) -> None:
    """Writes the plan's choices over those of the rows that had an offer."""
    ready = offers.is_ready.tolist()
    decided = zip(
        offers.rows.tolist(), chosen.arm_of.tolist(), chosen.budgets.tolist(), strict=True
    )
    for place, (index, arm, budget) in enumerate(decided):
        if budget > 0:
            odds = offers.survival[arm, place, :budget] if ready[arm] else None
            choices[index] = Choice(offers.arms[arm], budget, survival=odds)


def plan(
    offers: Offers, costs: Costs, price: float, base_tokens: int, catch_up_ms: Floats | None = None
) -> Plan:
    """The best plan over all subsets of the arms on offer.

    catch_up_ms: [A, R], what it costs this round to bring each arm up to each row; None for 0.

    Exact for one arm at hand, and for any arms where verify cost is linear in tokens. Otherwise
    the arm of each row is exact for the best *uniform* price of a node (Lagrange), which can miss
    the optimum by less than one row's worth.
    """
    num_rows = len(offers.rows)
    best = Plan(np.full(num_rows, -1, np.intp), np.zeros(num_rows, np.intp), 0.0)
    if num_rows == 0:
        return best
    extra = extra_verify_ms(costs, base_tokens, num_rows * offers.survival.shape[2])
    if len(offers.arms) == 1 and offers.is_ready[0]:
        budgets, gained = _best_budgets(offers.survival[0], extra, price)
        return Plan(np.where(budgets > 0, 0, -1), budgets, gained)
    fixed_ms, per_row_ms = _draft_costs(offers, costs)
    row_ms = np.broadcast_to(per_row_ms[:, None], (len(offers.arms), num_rows))
    if catch_up_ms is not None:
        row_ms = row_ms + np.where(offers.is_ready[:, None], 0.0, catch_up_ms)
    for arm_of in _arm_choices(offers, extra, price, fixed_ms, row_ms):
        tried = _budgeted(offers, arm_of, extra, price, fixed_ms, row_ms)
        if tried.value > best.value + _TIE:
            best = tried
    return best


def _draft_costs(offers: Offers, costs: Costs) -> tuple[Floats, Floats]:
    """Per arm, ms that the first row and that each further row costs; 0 where already drafted."""
    one = np.array([costs.draft_ms(arm, 1) for arm in offers.arms])
    two = np.array([costs.draft_ms(arm, 2) for arm in offers.arms])
    per_row = np.where(offers.is_ready, 0.0, two - one)
    return np.where(offers.is_ready, 0.0, one) - per_row, per_row


def _arm_choices(
    offers: Offers, extra: MsArray, price: float, fixed_ms: Floats, row_ms: Floats
) -> list[Ints]:
    """Each row's arm, at the subset and node price that promise most; the best few such."""
    node_prices = _node_prices(offers.survival, price * extra)
    # Survival falls along ranks, so the nodes above a price are the first ones.
    nodes = np.count_nonzero(offers.survival[:, :, :, None] > node_prices, axis=2)
    sums = np.zeros((*offers.survival.shape[:2], offers.survival.shape[2] + 1))
    np.cumsum(offers.survival, axis=2, out=sums[:, :, 1:])
    tokens = np.take_along_axis(sums, nodes, axis=2) - price * row_ms[:, :, None]
    net = tokens - nodes * node_prices
    places = np.arange(net.shape[1])[:, None], np.arange(net.shape[2])
    tried: list[tuple[float, Ints]] = []
    for part in _subsets(len(offers.arms)):
        pick = part[net[part].argmax(axis=0)]
        used = net[pick, *places] > 0.0
        count = (nodes[pick, *places] * used).sum(axis=0)
        gained = (tokens[pick, *places] * used).sum(axis=0)
        value = gained - price * (extra[count] + fixed_ms[part].sum())
        at = int(value.argmax())
        tried.append((float(value[at]), np.where(used[:, at], pick[:, at], -1)))
    tried.sort(key=lambda attempt: -attempt[0])
    return [arm_of for _, arm_of in tried[:_MAX_PLANS]]


def _subsets(num_arms: int) -> Iterator[Ints]:
    """Non-empty sets of arms, small ones first."""
    for size in range(1, num_arms + 1):
        for part in combinations(range(num_arms), size):
            yield np.array(part, np.intp)


def _node_prices(survival: Floats, extra_cost: Floats) -> Floats:
    """Prices of a node, in tokens: those at which some row's budget changes (thinned when many),
    and what nodes 1, 2, 3-4, 5-8, ... add to the cost of the forward."""
    changes = np.unique(np.append(survival, 0.0))
    if len(changes) > _MAX_NODE_PRICES:
        changes = changes[np.linspace(0, len(changes) - 1, _MAX_NODE_PRICES).astype(np.intp)]
    edges = np.append(0, 1 << np.arange((len(extra_cost) - 1).bit_length()))
    slopes = np.diff(extra_cost[edges]) / np.diff(edges)
    return np.append(changes, slopes)


def _budgeted(
    offers: Offers, arm_of: Ints, extra: MsArray, price: float, fixed_ms: Floats, row_ms: Floats
) -> Plan:
    """With the arms given, the best budgets: the m most likely nodes of all rows, for every m."""
    drafting = np.flatnonzero(arm_of >= 0)
    budgets = np.zeros(len(arm_of), np.intp)
    budgets[drafting], gained = _best_budgets(
        offers.survival[arm_of[drafting], drafting], extra, price
    )
    places = np.flatnonzero(budgets > 0)
    used = arm_of[places]
    spent = fixed_ms[np.unique(used)].sum() + row_ms[used, places].sum()
    return Plan(np.where(budgets > 0, arm_of, -1), budgets, gained - price * float(spent))


def _best_budgets(odds: Floats, extra: MsArray, price: float) -> tuple[Ints, float]:
    count, gained = best_count(odds[odds > 0.0], extra, price)
    if count == 0:
        return np.zeros(len(odds), np.intp), 0.0
    return nodes_per_row(odds, count), gained


def best_count(odds: Floats, extra: MsArray, price: float) -> tuple[int, float]:
    """How many of the most likely nodes to verify, and the tokens that gains; fewest on a tie."""
    if odds.size == 0:
        return 0, 0.0
    gains = np.sort(odds)[::-1].cumsum() - price * extra[1 : odds.size + 1]
    at = int(gains.argmax())
    return (at + 1, float(gains[at])) if gains[at] > _TIE else (0, 0.0)


def nodes_per_row(odds: Floats, count: int) -> Ints:
    """How many of the `count` most likely nodes each row holds; odds [R, K] non-increasing, ties
    go to the first row."""
    if len(odds) == 1:
        return np.array([count], np.intp)
    flat = odds.ravel()
    least = np.partition(flat, flat.size - count)[flat.size - count]
    above = (odds > least).sum(axis=1)
    ties = (odds == least).sum(axis=1)
    left = count - int(above.sum())
    before = ties.cumsum() - ties
    return np.asarray(above + np.minimum(np.maximum(left - before, 0), ties), np.intp)
