"""Rows of the suite `routing`: which arms an engine has, who chooses, and what is pinned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whiflash.core.rows import NONE

GOODPUT: Final = "goodput"
RETRIEVAL: Final = "retrieval"


@dataclass(frozen=True, slots=True)
class RoutingRow:
    """drafters, policy: of the engine; rows that have the same share one. pinned: the arm of every
    request, None where the policy chooses. is_static: one arm throughout, drafting or not."""

    name: str
    drafters: tuple[str, ...]
    policy: str = GOODPUT
    pinned: str | None = None

    @property
    def is_static(self) -> bool:
        return self.pinned is not None


def every_arm(folders: Mapping[str, str]) -> tuple[str, ...]:
    """All arms that there are, EAGLE-3 as a chain. folders: by kind, eagle3 and dflash."""
    drafters = [RETRIEVAL]
    if "eagle3" in folders:
        drafters.append(_chain(folders))
    if "dflash" in folders:
        drafters += [f"dflash:{folders['dflash']}", f"ddtree:{folders['dflash']}"]
    return tuple(drafters)


def _chain(folders: Mapping[str, str]) -> str:
    return f"eagle3:{folders['eagle3']},tree=chain"


def routing_rows(
    folders: Mapping[str, str], tau: float | None, router: Path | None, is_full: bool
) -> Iterator[RoutingRow]:
    """`none` first, goodput last. tau: of entropy, None where it cannot be measured; router: file
    of `neural`. is_full adds the rules and the bandit."""
    arms = every_arm(folders)
    for pinned in (NONE, RETRIEVAL):
        yield RoutingRow(pinned, arms, pinned=pinned)
    if "eagle3" in folders:
        yield RoutingRow("eagle3 chain", arms, pinned="eagle3")
        yield RoutingRow("eagle3 tree", (f"eagle3:{folders['eagle3']}",), pinned="eagle3")
    if "dflash" in folders:
        yield RoutingRow("dflash", arms, pinned="dflash")
        yield RoutingRow("ddtree", arms, pinned="ddtree")
    if tau is not None:
        two = (_chain(folders), f"dflash:{folders['dflash']}")
        yield RoutingRow("entropy", two, f"entropy:tau={tau:.6g}")
        if router is not None:
            yield RoutingRow("neural", two, f"neural:file={router}")
    if is_full:
        yield RoutingRow("rules: respec", arms, "rules:rule=respec,trim=yes")
        yield RoutingRow("bandit", arms, "bandit:reward=efficiency")
    yield RoutingRow(GOODPUT, arms)
