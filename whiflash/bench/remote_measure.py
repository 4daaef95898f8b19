"""What drafting costs more when the drafter runs in a process of its own on the same machine.

Both engines verify the same drafts, so their rounds match one by one. For the suite `cluster`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from whiflash.core.errors import WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket

MAX_STEPS = 20_000
_WARM_STEPS = 8
_SEED = 7


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of the steps of one run that drafted and prefilled nothing; medians.

    draft_ms: asking, waiting and catch-up included.
    """

    draft_ms: float
    total_ms: float
    num_steps: int


@dataclass(frozen=True, slots=True)
class RemoteCost:
    """One arm, one number of rows: a run here and one elsewhere per pair, in alternation."""

    arm: str
    rows: int
    local: Sequence[StepTimes]
    remote: Sequence[StepTimes]

    @property
    def shares(self) -> list[float]:
        """Of each pair: extra drafting time over a whole in-process round. The goal is under 0.1
        (design.md 10)."""
        return [
            (there.draft_ms - here.draft_ms) / here.total_ms
            for here, there in zip(self.local, self.remote, strict=True)
        ]

    @property
    def share(self) -> float:
        return statistics.median(self.shares)

    @property
    def whole_share(self) -> float:
        """How much longer a whole round takes elsewhere: the forward may suffer as well."""
        return statistics.median(
            there.total_ms / here.total_ms - 1.0
            for here, there in zip(self.local, self.remote, strict=True)
        )


def compare(
    arm: str,
    local: EngineCore,
    remote: EngineCore,
    requests: Sequence[GenerationRequest],
    num_pairs: int,
) -> RemoteCost:
    """All requests at once, in either engine by turns; the drafter of `remote` must be up, and be
    waited for: a round that is late is no drafted step. Raises WhiFlashError if a text differs."""
    for core in (local, remote):
        time_steps(core, requests[:1])
    here, there = [], []
    for _ in range(num_pairs):
        mine, local_ids = time_steps(local, requests)
        theirs, remote_ids = time_steps(remote, requests)
        if local_ids != remote_ids:
            raise WhiFlashError("the text depends on where the drafter runs: report this as a bug")
        here.append(mine)
        there.append(theirs)
    return RemoteCost(arm, len(requests), here, there)


def time_steps(
    core: EngineCore, requests: Sequence[GenerationRequest]
) -> tuple[StepTimes, list[tuple[int, ...]]]:
    """Runs all requests; times of drafted steps, and the ids of each first choice."""
    tickets = [Ticket(request, _SEED) for request in requests]
    for ticket in tickets:
        core.submit(ticket)
    drafts, totals = [], []
    for _ in range(MAX_STEPS):
        prefilled, plain = core.counters.prefill_tokens, core.counters.plain_steps
        started = time.perf_counter()
        if not core.step():
            break
        took_ms = 1e3 * (time.perf_counter() - started)
        if core.counters.prefill_tokens == prefilled and core.counters.plain_steps == plain:
            caught_up = sum(ms for _, ms in core.drafting.catch_ups.spent.values())
            drafts.append(sum(core.drafting.draft_ms.values()) + caught_up)
            totals.append(took_ms)
    ids = [ticket.result().choices[0].token_ids for ticket in tickets]
    drafts, totals = drafts[_WARM_STEPS:] or drafts, totals[_WARM_STEPS:] or totals
    if not drafts:
        raise WhiFlashError("no step drafted; take longer answers, or another drafter")
    return StepTimes(statistics.median(drafts), statistics.median(totals), len(drafts)), ids
