"""Engines of the suite `routing`, stepped on this thread: a second thread that calls torch would
slow small forwards (`engine/thread.py`), and the rows of a table need several engines at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from whiflash.bench.round_times import RoundTimes
from whiflash.bench.routing_rows import RoutingRow
from whiflash.bench.runs import cold_request
from whiflash.config import EngineConfig
from whiflash.core.usage import Usage
from whiflash.engine.build import EngineParts, build_parts
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket

_MEMORY: Final = "1GiB"
BATCH: Final = 8
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as ids, and the longest answer."""

    ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Requests that came at once. switches: rounds whose arm is another than that of the round
    before."""

    texts: tuple[tuple[int, ...], ...]
    usages: tuple[Usage, ...]
    times: RoundTimes
    switches: int


class RoutingEngines:
    """One engine per set of arms and policy, made when first asked for. A context manager."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._made: dict[tuple[Any, ...], EngineParts] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def parts(self, row: RoutingRow) -> EngineParts:
        """Raises ConfigError, ModelError."""
        key = (row.drafters, row.policy)
        if key not in self._made:
            built = build_parts(self._config(row))
            self._made[key] = self._stack.enter_context(closing(built))
        return self._made[key]

    def _config(self, row: RoutingRow, **others: Any) -> EngineConfig:
        return EngineConfig.of(
            model=self._model, drafters=row.drafters, policy=row.policy, memory=_MEMORY,
            max_batch=BATCH, **others,
        )  # fmt: skip

    def run(self, row: RoutingRow, asked: Sequence[Asked]) -> BatchRun:
        """All at once, each in a namespace of its own; whole calls, prefill included."""
        return run_batch(self.parts(row).core, asked, row.pinned)

    @contextmanager
    def survey(self, drafters: tuple[str, ...], log: Path) -> Iterator[EngineParts]:
        """An engine that logs what every arm proposes at every root; the log is whole behind it."""
        row = RoutingRow("survey", drafters, "survey")
        with closing(build_parts(self._config(row, round_log=log, plain_share=0.0))) as parts:
            yield parts


def run_batch(core: EngineCore, asked: Sequence[Asked], pinned: str | None) -> BatchRun:
    """As `RoutingEngines.run`."""
    before = sum(core.counters.switched.values())
    tickets = [_submit(core, one, pinned)[0] for one in asked]
    times = RoundTimes()
    while core.has_work:
        times.step(core)
    answers = [ticket.result().choices[0] for ticket in tickets]
    return BatchRun(
        tuple(tuple(answer.token_ids) for answer in answers),
        tuple(answer.usage for answer in answers),
        times,
        sum(core.counters.switched.values()) - before,
    )


def follow_one(core: EngineCore, asked: Asked) -> int:
    """One text to its end; its sequence number."""
    ticket, number = _submit(core, asked, None)
    while core.has_work:
        core.step()
    ticket.result()
    return number


def _submit(core: EngineCore, asked: Asked, pinned: str | None) -> tuple[Ticket, int]:
    number = next(_numbers)
    request = cold_request(asked.ids, asked.max_tokens, pinned, namespace=f"routing-{number}")
    ticket = Ticket(request, number)
    (sequence,) = core.submit(ticket)
    return ticket, sequence.id
