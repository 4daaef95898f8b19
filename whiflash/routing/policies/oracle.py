"""oracle: the clairvoyant path through a known text, by dynamic programming. Replay only.

What it does. It knows the text and what every arm would have proposed at every root of it, and
finds the choices of arm and budget that emit the text in the least time at measured costs: the
bound for every policy, and what regret is measured against. A draft is verified just as far as it
comes true. Catch-up is exact where it is linear in tokens: a position is absorbed once by every
arm that is used later, so the state is a position and the set of arms still to be used.

When it is neutral. Where no draft comes true, or none pays for itself, it decodes plainly. At
positions whose proposals the log does not hold it can only decode plainly.

Parameters. None. No engine can have it.

Example. `whiflash replay rounds LOG --policy goodput`: the last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whiflash.core.rows import NONE
from whiflash.routing.replay.costs import ReplayCosts
from whiflash.routing.replay.turns import Root, Turn


@dataclass(frozen=True, slots=True)
class OracleRound:
    """A round of the path: verify `nodes` of the arm's draft at `position`, emit `emitted`."""

    position: int
    arm: str
    nodes: int
    emitted: int


@dataclass(frozen=True, slots=True)
class OraclePath:
    """total_ms: of all rounds, catch-up included."""

    rounds: tuple[OracleRound, ...]
    total_ms: float


Later = frozenset[str]
_NOBODY: Later = frozenset()


@dataclass(frozen=True, slots=True)
class _Best:
    """Least time from a position to the end, given which arms are used there or later."""

    ms: float
    round: OracleRound | None = None
    later: Later = _NOBODY


def clairvoyant(turn: Turn, costs: ReplayCosts, taps: Sequence[str]) -> OraclePath:
    """taps: the arms that have to catch up; their backlog begins at position 0."""
    per_token = {arm: costs.catch_up_ms(arm, 1) for arm in taps}
    best: dict[int, dict[Later, _Best]] = {turn.last: {_NOBODY: _Best(0.0)}}
    for position in range(turn.last - 1, turn.first - 1, -1):
        best[position] = _bests(turn, position, best, costs, per_token)
    totals = {
        used: found.ms + turn.first * sum(per_token[arm] for arm in used)
        for used, found in best[turn.first].items()
    }
    used = min(totals, key=totals.__getitem__)
    return OraclePath(tuple(_path(best, turn.first, used)), totals[used])


def _bests(
    turn: Turn,
    position: int,
    best: dict[int, dict[Later, _Best]],
    costs: ReplayCosts,
    per_token: dict[str, float],
) -> dict[Later, _Best]:
    found: dict[Later, _Best] = {}
    for tried in _options(turn, position):
        own_ms = costs.round_ms(tried.arm, tried.nodes, 0)
        for later, rest in best[position + tried.emitted].items():
            absorbed = sum(per_token[arm] for arm in later) * tried.emitted
            used = later | {tried.arm} if tried.arm in per_token else later
            ms = own_ms + absorbed + rest.ms
            if used not in found or ms < found[used].ms:
                found[used] = _Best(ms, tried, later)
    return found


def _options(turn: Turn, position: int) -> Iterator[OracleRound]:
    yield OracleRound(position, NONE, 0, 1)
    root = turn.roots.get(position)
    for arm in root.proposals if root is not None else ():
        assert root is not None
        yield from _drafted(turn, position, root, arm)


def _drafted(turn: Turn, position: int, root: Root, arm: str) -> Iterator[OracleRound]:
    """One for every depth that came true, with just the nodes that takes."""
    ranks = root.proposals[arm].ranks or ()
    nodes = 0
    for depth, rank in enumerate(ranks, 1):
        nodes = max(nodes, rank + 1)
        yield OracleRound(position, arm, nodes, min(depth + 1, turn.last - position))


def _path(best: dict[int, dict[Later, _Best]], position: int, used: Later) -> Iterator[OracleRound]:
    found = best[position][used]
    while found.round is not None:
        yield found.round
        position += found.round.emitted
        found = best[position][found.later]
