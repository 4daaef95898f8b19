"""Suite `switching`: one agent session under a policy that changes arms at a fixed rate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import Drafter
from whiflash.core.rows import Outcome, Prediction, RouteRow
from whiflash.engine.build import EngineParts
from whiflash.engine.core import EngineCore
from whiflash.engine.sequence import Sequence as Row
from whiflash.engine.sequence import State
from whiflash.engine.ticket import Ticket
from whiflash.routing.costs import CostModel
from whiflash.routing.router import Router

Ids = tuple[int, ...]


class AlternatingPolicy:
    """Each of `arms` in turn for `period` rounds."""

    name = "alternating"

    def __init__(self, arms: Sequence[str], period: int) -> None:
        self._arms = arms
        self._period = period
        self._round = 0

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        arm = self._arms[self._round // self._period % len(self._arms)]
        self._round += 1
        return [Prediction(fixed=(arm, row.max_nodes)) for row in rows]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learns nothing."""


@dataclass(frozen=True, slots=True)
class Script:
    """A session: the first prompt, and what comes between two answers of `answer_tokens`."""

    prompt: Ids
    results: tuple[Ids, ...]
    answer_tokens: int


@dataclass(slots=True)
class Steps:
    """Decode steps of one session. total_ms: of each step; catch_up_ms: of that, bringing drafters
    up to the root; rerun_tokens: positions absorbed whose taps the step's own forward before it did
    not bring, by catch-up."""

    total_ms: list[float] = field(default_factory=list)
    catch_up_ms: list[float] = field(default_factory=list)
    rerun_tokens: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        return sum(self.catch_up_ms) / sum(self.total_ms)

    def share_with(self, rerun_ms: float) -> float:
        """If catching up took so much longer."""
        return (sum(self.catch_up_ms) + rerun_ms) / (sum(self.total_ms) + rerun_ms)


class SwitchingCore:
    """An engine core of its own on the target of `parts`, stepped on this thread."""

    def __init__(
        self, parts: EngineParts, drafters: Mapping[str, Drafter], window_tokens: int
    ) -> None:
        self._arms = tuple(drafters)
        # The rule is asked every round: no rests, and no fall-back where drafts do not pay.
        self._router = Router(
            AlternatingPolicy(self._arms, 1), CostModel(parts.target.verify_curve),
            plain_share=0.0, may_rest=False,
        )  # fmt: skip
        limits = replace(parts.limits, draft_window=window_tokens)
        self.core = EngineCore(
            parts.target, parts.tokenizer, drafters, self._router, parts.publisher, limits
        )

    def run(
        self,
        script: Script,
        arms: Sequence[str],
        period: int,
        *,
        is_eager: bool = False,
        keeps_drafts: bool = True,
    ) -> Steps:
        """is_eager: every drafter absorbs every round, asked or not. keeps_drafts: what drafters
        hold outlives a turn. The target's KV of the first prompt is there from the second run on.
        """
        self._router.policy = AlternatingPolicy(arms, period)
        steps, prompt = Steps(), script.prompt
        for result in (*script.results, ()):
            answer = self._turn(prompt, script.answer_tokens, steps, is_eager, keeps_drafts)
            prompt = (*prompt, *answer, *result)
        return steps

    def _turn(
        self, prompt: Ids, num_tokens: int, steps: Steps, is_eager: bool, keeps_drafts: bool
    ) -> Ids:
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        ticket = Ticket(GenerationRequest(prompt, params, store=False), 0)
        (row,) = self.core.submit(ticket)
        before = 0
        while self.core.has_work:
            if row.state is not State.DECODE:
                self.core.step()
                before = 0 if row.cache is None else row.cache.length - 1
                continue
            if row.is_draft_open is False and not keeps_drafts:
                self._forget(row)
            assert row.cache is not None
            length = row.cache.length
            self._step(row, length - before, steps, is_eager)
            before = length
        return ticket.result().choices[0].token_ids

    def _step(self, row: Row, num_new: int, steps: Steps, is_eager: bool) -> None:
        catch_ups = self.core.drafting.catch_ups
        started = time.perf_counter()
        self.core.step()
        spent = dict(catch_ups.spent)
        catch_up_ms = sum(ms for _, ms in spent.values())
        if is_eager and row.state is State.DECODE:
            catch_up_ms += self._synchronise(row)
        steps.total_ms.append(1e3 * (time.perf_counter() - started))
        steps.catch_up_ms.append(catch_up_ms)
        steps.rerun_tokens += [tokens - num_new for tokens, _ in spent.values() if tokens > num_new]

    def _synchronise(self, row: Row) -> float:
        """Milliseconds to bring every drafter up to the root."""
        started = time.perf_counter()
        for arm in self._arms:
            self.core.drafting.catch_ups.run(arm, [row])
        return 1e3 * (time.perf_counter() - started)

    def _forget(self, row: Row) -> None:
        for drafter in self.core.arms.tap_drafters.values():
            drafter.forget([row.draft_id])

    def close(self) -> None:
        """Gives its KV and what drafters hold back."""
        self.core.close()
        self.core.arms.check_integrity()
