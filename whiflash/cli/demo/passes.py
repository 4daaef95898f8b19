"""The passes of the demo: the second fillings are the same kinds of work with other contents, so
that what was learned from the first ones pays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from whiflash.cli.demo.content import code, rooms, settings, stock, tickets, writing
from whiflash.cli.demo.scenarios import Scenario

_KINDS = (writing, stock, rooms, tickets, settings, code)

FIRST_PASS: tuple[Scenario, ...] = tuple(kind.FIRST for kind in _KINDS)
SECOND_PASS: tuple[Scenario, ...] = tuple(kind.SECOND for kind in _KINDS)


@dataclass(frozen=True, slots=True)
class PassPlan:
    """One pass.

    key:      its name in JSON.
    is_apart: it works in a namespace of its own, where nothing is stored.
    teaches:  its turns enter the store; those of the others do not, so that all warm passes draft
              from the same first fillings.
    has_twin: every session is decoded plainly too.
    """

    key: str
    title: str
    scenarios: tuple[Scenario, ...]
    is_apart: bool = False
    teaches: bool = False
    has_twin: bool = True


COLD = PassPlan("cold", "other fillings, store empty", SECOND_PASS, is_apart=True, teaches=True)
TEACHING = PassPlan(
    "first_fillings", "first fillings, store empty", FIRST_PASS, teaches=True, has_twin=False
)
OTHER_PROCESS = PassPlan("warm_other_process", "other fillings, in a second process", SECOND_PASS)
RESTARTED = PassPlan("after_restart", "other fillings, after a restart", SECOND_PASS)
REPEATED = PassPlan(
    "identical_repeat", "first fillings again (identical repeat), restarted", FIRST_PASS
)

Stage = tuple[tuple[PassPlan, ...], ...]
"""Processes that live at the same time; each runs its passes when those before it are done. A pass
that is compared with another one is the first of its process, as the other is: what a process
learns about costs and policies is not kept in the store."""

FILE_STAGES: tuple[Stage, ...] = (((COLD, TEACHING),), ((RESTARTED,),), ((REPEATED,),))
SHARED_STAGES: tuple[Stage, ...] = (
    ((COLD, TEACHING), (OTHER_PROCESS,)),
    ((RESTARTED,),),
    ((REPEATED,),),
)


KINDS: tuple[str, ...] = tuple(one.KIND.name for one in _KINDS)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of the passes is run. Sessions a pass and turns a session are the first ones."""

    num_sessions: int | None = None
    num_turns: int | None = None
    kind: str | None = None
    has_repeat: bool = True

    def shortened(self, plan: PassPlan) -> PassPlan:
        """The plan with fewer and shorter sessions."""
        wanted = [one for one in plan.scenarios if self.kind in (None, one.kind.name)]
        kept = [replace(one, turns=one.turns[: self.num_turns]) for one in wanted]
        return replace(plan, scenarios=tuple(kept[: self.num_sessions]))

    def stages(self, is_shared: bool) -> tuple[Stage, ...]:
        """The processes to start, over a store that others share or not."""
        stages = SHARED_STAGES if is_shared else FILE_STAGES
        return stages if self.has_repeat else stages[:-1]
