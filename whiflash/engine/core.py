"""The round loop: one step admits, chooses, drafts, verifies, commits and emits.

Synchronous and single-threaded; `thread.py` runs it behind a queue, tests step it by hand."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from whiflash.core.errors import EngineClosedError, WhiFlashError
from whiflash.core.protocols import Drafter, Target, Tokenizer
from whiflash.core.results import FinishReason
from whiflash.core.rows import Outcome, StepCost
from whiflash.engine.admission import Admission
from whiflash.engine.arms import Arms
from whiflash.engine.catch_up import CatchUps
from whiflash.engine.counters import Counters
from whiflash.engine.drafting import Drafting, DraftLimits, RowDraft
from whiflash.engine.feedback import FeedbackBook
from whiflash.engine.intake import Intake
from whiflash.engine.outlook import Outlook
from whiflash.engine.prefill import PrefillChunk, commit_chunks, plan_chunks
from whiflash.engine.publish import Publisher
from whiflash.engine.sequence import Sequence, State
from whiflash.engine.shadow import SHADOW_SHARE, Shadows
from whiflash.engine.swap import Swaps
from whiflash.engine.ticket import Ticket
from whiflash.engine.verify import Verdict, VerifyForward
from whiflash.routing.router import Router

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes that the loop keeps to; see EngineConfig for their meaning. memory_bytes: of the
    target's KV and taps; draft_bytes: of what neural drafters hold, beside that. hold_ms: most that
    a step waits for drafts made elsewhere; None is the fixed cost of a verify forward.
    shadow_share: of roots that are drawn for shadow proposals."""

    memory_bytes: int
    max_batch: int
    max_queue: int
    prefill_chunk: int
    max_draft_nodes: int
    max_draft_depth: int
    draft_window: int
    draft_bytes: int = 64 << 20
    hold_ms: float | None = None
    shadow_share: float = SHADOW_SHARE


class EngineCore:
    """Owns all sequences. Not thread-safe: one thread calls it. last_cost: of the last step that
    ran a forward."""

    def __init__(
        self,
        target: Target,
        tokenizer: Tokenizer,
        drafters: Mapping[str, Drafter],
        router: Router,
        publisher: Publisher,
        limits: EngineLimits,
    ) -> None:
        self.target = target
        self.arms = Arms(drafters, limits.draft_bytes)
        self._router = router
        self._publisher = publisher
        self._limits = limits
        info = target.info
        self.counters = Counters()
        self.intake = Intake(info, tokenizer, tuple(drafters))
        self.admission = Admission(
            target, limits.memory_bytes, limits.max_batch, limits.max_queue,
            limits.max_draft_nodes, self.arms.drop, self.counters,
        )  # fmt: skip
        depth_limit = DraftLimits(
            limits.max_draft_nodes, limits.max_draft_depth, info.context_limit
        )
        catch_ups = CatchUps(self.arms.tap_drafters, self.arms.memory, limits.draft_window)
        self.drafting = Drafting(
            self.arms, router, catch_ups, depth_limit, info.vocab_size, limits.hold_ms
        )
        self.swaps = Swaps(self.arms, target, router)
        self.outlook = Outlook(self.arms, router, publisher.needs)
        self.feedback = FeedbackBook()
        self.shadows = Shadows(
            self.arms, self.admission.prefixes, router, publisher, self.counters,
            info.vocab_size, limits.draft_window, limits.shadow_share,
        )  # fmt: skip
        self.running: list[Sequence] = []
        self.last_cost: StepCost | None = None

    def submit(self, ticket: Ticket) -> list[Sequence]:
        """Queues one sequence per choice. Raises what the request does wrong, or QueueFullError."""
        self.intake.check(ticket.request)
        self.admission.check(ticket.request)
        created = self.intake.sequences(ticket)
        self.admission.waiting.extend(created)
        return created

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.admission.waiting)

    def step(self) -> bool:
        """One round of every running sequence; False if there was nothing to do."""
        started = time.perf_counter()
        self.swaps.run()
        self._drop_ended()
        self.admission.extend(self.running)
        self._sift()
        self.running += self._admit()
        if not self.running:
            return False
        chunks = plan_chunks(self.running, self._limits.prefill_chunk)
        decoding = [s for s in self.running if s.state is State.DECODE]
        rows = self.drafting.run(decoding, sum(chunk.num_tokens for chunk in chunks))
        rows, chunks = self._drop_gone(rows, chunks)
        if not rows and not chunks:
            return True
        forward = VerifyForward(self.target, rows, chunks)
        verdicts = forward.judge_all(rows, chunks)
        self.counters.prefill_tokens += commit_chunks(chunks)
        emitted = self._apply(forward, rows, verdicts)
        self._account(forward, rows, chunks, emitted, started)
        self._sift()
        return True

    def _sift(self) -> None:
        self.running = [s for s in self.running if s.is_running]

    def _admit(self) -> list[Sequence]:
        admitted = self.admission.admit(self.running)
        self.counters.inherited_drafts += sum(self.arms.adopt(s) for s in admitted)
        return admitted

    def _drop_ended(self) -> None:
        """Cancelled and overdue sequences leave before anything is spent on them."""
        now = time.perf_counter()
        for sequence in [*self.running, *self.admission.waiting]:
            reason = sequence.end_reason(now)
            if reason is not None:
                self._finish(sequence, reason)
        self._sift()
        waiting = self.admission.waiting
        for sequence in [s for s in waiting if s.is_finished]:
            waiting.remove(sequence)

    def _drop_gone(
        self, rows: list[RowDraft], chunks: list[PrefillChunk]
    ) -> tuple[list[RowDraft], list[PrefillChunk]]:
        """A caller may leave while its row drafts, and a row may lose its memory meanwhile: the
        draft is dropped with the row, and nobody learns from it."""
        for sequence in [row.sequence for row in rows] + [c.sequence for c in chunks]:
            if sequence.ticket.is_cancelled and sequence.is_running:
                self.counters.cancelled_mid_draft += sequence.state is State.DECODE
                self._finish(sequence, FinishReason.CANCELLED)
        self._sift()
        return (
            [row for row in rows if row.sequence.is_running],
            [chunk for chunk in chunks if chunk.sequence.is_running],
        )

    def _apply(
        self, forward: VerifyForward, rows: list[RowDraft], verdicts: list[Verdict]
    ) -> list[int]:
        """Commits and emits what each verdict says; tokens emitted per verdict."""
        drafts = {row.sequence.id: row for row in rows}
        emitted = [self._apply_one(drafts.get(v.sequence.id), v) for v in verdicts]
        is_prefilling = any(s.state is State.PREFILL for s in self.running)
        self.outlook.take(forward, drafts, verdicts, is_prefilling=is_prefilling)
        return emitted

    def _apply_one(self, draft: RowDraft | None, verdict: Verdict) -> int:
        sequence = verdict.sequence
        if verdict.acceptance is None:
            sequence.error = str(verdict.error)
            self._finish(sequence, FinishReason.ERROR)
            return 0
        tokens = verdict.acceptance.tokens
        emission = sequence.stops.push(tokens)
        if sequence.grammar is not None:
            sequence.grammar.advance(tokens[: emission.num_kept])
        if draft is not None:
            assert sequence.cache is not None
            sequence.cache.commit(verdict.acceptance.rows[: emission.num_kept])
            self.feedback.note(draft)
            self.shadows.draw(draft)
            accepted = verdict.acceptance.accepted
            sequence.recent.note(draft.arm, accepted, draft.tree.max_depth)
            self.counters.note_rejection(draft, accepted)
        sequence.append(tokens[: emission.num_kept])
        self._publisher.round(sequence, draft, verdict, emission)
        if emission.finish_reason is not None:
            sequence.matched_stop = emission.matched
            self._finish(sequence, emission.finish_reason)
        return emission.num_kept

    def _account(
        self,
        forward: VerifyForward,
        rows: list[RowDraft],
        chunks: list[PrefillChunk],
        emitted: list[int],
        started: float,
    ) -> None:
        for row in rows:
            if not row.sequence.is_finished:
                self._learn(row.sequence)
        outcomes = [
            Outcome(row.route, row.choice, len(row.tree), max(count - 1, 0), count,
                    row.sequence.is_finished)
            for row, count in zip(rows, emitted, strict=False) if row.route is not None
        ]  # fmt: skip
        cost = StepCost(
            tokens=forward.num_rows,
            verify_ms=forward.verify_ms,
            draft_ms=dict(self.drafting.draft_ms),
            total_ms=1e3 * (time.perf_counter() - started),
            emitted=sum(emitted[: len(rows)]),
            was_plain=all(len(row.tree) == 0 for row in rows),
            was_decode_only=not chunks,
            catch_up=dict(self.drafting.catch_ups.spent),
            was_pinned=any(row.is_pinned and len(row.tree) for row in rows),
            num_looked=sum(row.route is not None for row in rows),
            look_ms=self.drafting.look_ms + self.outlook.spent_ms,
        )
        self.last_cost = cost
        self._router.observe(outcomes, cost)
        self.counters.note(rows, chunks, cost)
        self.counters.mask_ms += forward.mask_ms
        self._publisher.log_rounds(rows, emitted, cost)

    def _learn(self, sequence: Sequence) -> None:
        for arm, feedback in self.feedback.settle(sequence).items():
            self.arms.drafters[arm].learn(feedback)
            self._publisher.log_settled(sequence.id, arm, feedback)

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.state = State.FINISHED
        sequence.finish_reason = reason
        self._learn(sequence)
        self.feedback.forget(sequence.id)
        self.arms.finish(sequence)
        self._router.forget(sequence.id)
        if sequence.cache is not None and reason is FinishReason.ERROR:
            sequence.cache.truncate(0)
        self.admission.retire(sequence)
        self.shadows.end(sequence)
        self._publisher.finish(sequence)

    def close(self, error: WhiFlashError | None = None) -> None:
        """Ends everything: open requests fail with `error` (default EngineClosedError)."""
        failure = error or EngineClosedError("the engine was closed before the request finished")
        for sequence in [*self.running, *self.admission.waiting]:
            sequence.ticket.fail(failure)
            self._finish(sequence, FinishReason.CANCELLED)
        self.running = []
        self.admission.waiting.clear()
        self.admission.prefixes.clear()

    def check_integrity(self) -> None:
        """Tests call it after every scenario."""
        for sequence in [*self.running, *self.admission.waiting]:
            sequence.check_integrity()
        self.admission.check_integrity(self.running)
        self.arms.check_integrity()
        self.shadows.check_integrity([*self.running, *self.admission.waiting])
        if not self.has_work:
            assert len(self.feedback) == 0, "proposals outlived their sequences"
