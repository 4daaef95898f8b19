"""Rows of the suite `routing`: which arms an engine has, who chooses, and what is pinned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from whiflash.core.rows import NONE
from whiflash.models.shipped import shipped_specs

GOODPUT: Final = "goodput"
RETRIEVAL: Final = "retrieval"
CLAIRVOYANT: Final = "clairvoyant"
CHAIN: Final = "tree=chain"
RULES: Final = ("arctic", "trtllm", "respec")


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

    @property
    def reads_store(self) -> bool:
        """Whether earlier runs may be drafted from."""
        return RETRIEVAL in self.drafters and self.pinned in (None, RETRIEVAL)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """folders: by kind, eagle3 and dflash; chain: options of EAGLE-3 where it drafts chains."""

    folders: Mapping[str, str]
    chain: str = CHAIN

    @classmethod
    def of(cls, model: str, folders: Mapping[str, str]) -> Checkpoints:
        """Chains as they are shipped for `model`, if they are."""
        options = dict(spec.partition(",")[::2] for spec in shipped_specs(model))
        return cls(folders, options.get("eagle3", CHAIN))

    @property
    def eagle3(self) -> str:
        """As --drafter takes it, a chain."""
        return f"eagle3:{self.folders['eagle3']},{self.chain}"

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms that there are, EAGLE-3 as a chain."""
        drafters = [RETRIEVAL]
        if "eagle3" in self.folders:
            drafters.append(self.eagle3)
        if "dflash" in self.folders:
            drafters += [f"{kind}:{self.folders['dflash']}" for kind in ("dflash", "ddtree")]
        return tuple(drafters)


def routing_rows(
    checkpoints: Checkpoints, tau: float | None, router: Path | None, is_full: bool
) -> Iterator[RoutingRow]:
    """`none` first, goodput last. tau: of entropy, None where it cannot be measured; router: file
    of `neural`. is_full adds the published rules, plain and with trim, and the bandit."""
    arms, folders = checkpoints.arms, checkpoints.folders
    for pinned in (NONE, RETRIEVAL):
        yield RoutingRow(pinned, arms, pinned=pinned)
    if "eagle3" in folders:
        yield RoutingRow("eagle3 chain", arms, pinned="eagle3")
        yield RoutingRow("eagle3 tree", (f"eagle3:{folders['eagle3']}",), pinned="eagle3")
    if "dflash" in folders:
        yield RoutingRow("dflash", arms, pinned="dflash")
        yield RoutingRow("ddtree", arms, pinned="ddtree")
    if tau is not None:
        two = (checkpoints.eagle3, f"dflash:{folders['dflash']}")
        yield RoutingRow("entropy", two, f"entropy:tau={tau:.6g}")
        if router is not None:
            yield RoutingRow("neural", two, f"neural:file={router}")
    if is_full:
        for rule in RULES:
            yield RoutingRow(f"rules: {rule}", arms, f"rules:rule={rule}")
            yield RoutingRow(f"rules: {rule} + trim", arms, f"rules:rule={rule},trim=yes")
        yield RoutingRow("bandit", arms, "bandit:reward=efficiency")
    yield RoutingRow(GOODPUT, arms)
