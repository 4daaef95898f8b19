"""What drafting costs more when the drafter runs in a process of its own on the same machine.

Both engines verify the same drafts, so their rounds match one by one; the difference of their
steps without the forward is what the way there and back costs. For the suite `cluster`."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from whiflash.config import EngineConfig
from whiflash.core.errors import WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.serving.remote.hosting import drafter_host

MAX_STEPS = 20_000
START_S = 300.0
_WARM_STEPS = 8


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of the steps of one run that drafted and prefilled nothing; medians.

    draft: asking, waiting and catch-up included. num_tokens: of all answers.
    """

    draft_ms: float
    total_ms: float
    num_steps: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RemoteCost:
    """One arm, one number of rows. share: extra drafting time over a whole in-process round; the
    goal is under 0.1 (design.md 10). late_rounds: rounds that nobody waited for."""

    arm: str
    rows: int
    local: StepTimes
    remote: StepTimes
    late_rounds: int

    @property
    def extra_ms(self) -> float:
        return self.remote.draft_ms - self.local.draft_ms

    @property
    def share(self) -> float:
        return self.extra_ms / self.local.total_ms


def measure_remote(
    arm: str,
    make_local: Callable[[], EngineCore],
    make_remote: Callable[[], EngineCore],
    requests: Sequence[GenerationRequest],
    seed: int = 7,
) -> RemoteCost:
    """Both engines run the same requests at once; `make_remote`'s drafter must be up. Raises
    WhiFlashError if a text differs."""
    local_core, remote_core = make_local(), make_remote()
    local, local_ids = time_steps(local_core, requests, seed)
    remote, remote_ids = time_steps(remote_core, requests, seed)
    late = remote_core.drafting.hold.num_late
    for core in (local_core, remote_core):
        core.close()
    if local_ids != remote_ids:
        raise WhiFlashError("the text depends on where the drafter runs: report this as a bug")
    return RemoteCost(arm, len(requests), local, remote, late)


def time_steps(
    core: EngineCore, requests: Sequence[GenerationRequest], seed: int
) -> tuple[StepTimes, list[tuple[int, ...]]]:
    """Runs all requests; times of drafted steps, and the ids of each first choice."""
    tickets = [Ticket(request, seed) for request in requests]
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
    times = StepTimes(
        statistics.median(drafts), statistics.median(totals), len(drafts), sum(map(len, ids))
    )
    return times, ids


@contextmanager
def hosted(config: EngineConfig, kind: str, dtype: str, max_bytes: int = 1 << 30) -> Iterator[str]:
    """The address of `config`'s drafter in a process of its own, while the context is open. Raises
    WhiFlashError if it does not start."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_host, args=(config, kind, dtype, max_bytes, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise WhiFlashError(f"the host of drafter {kind} did not start in {START_S:g} s")
        address: str = ours.recv()
        yield address
    except EOFError:
        raise WhiFlashError(f"the host of drafter {kind} ended before it listened") from None
    finally:
        ours.close()
        process.join(10.0)
        if process.is_alive():
            process.kill()
            process.join()


def _host(config: EngineConfig, kind: str, dtype: str, max_bytes: int, parent: Connection) -> None:
    """The process's whole life: until the parent lets go of the pipe."""
    asyncio.run(_serve(config, kind, dtype, max_bytes, parent))


async def _serve(
    config: EngineConfig, kind: str, dtype: str, max_bytes: int, parent: Connection
) -> None:
    server = drafter_host(config, kind, dtype, max_bytes)
    parent.send(await server.start())
    await asyncio.to_thread(_wait_for_end, parent)
    await server.stop()


def _wait_for_end(parent: Connection) -> None:
    try:
        parent.recv()
    except EOFError:
        return
