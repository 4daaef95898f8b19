"""What a round and a finished turn leave behind: usage, deltas, completions, logs."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Rows

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter
from whiflash.core.results import Completion, Delta, FinishReason, Segment
from whiflash.core.rows import NONE, Feedback, StepCost
from whiflash.core.signals import SignalNeeds
from whiflash.core.usage import ArmUsage
from whiflash.engine.drafting import RowDraft
from whiflash.engine.round_records import (
    LOOKBACK,
    round_record,
    run_record,
    settled_record,
    shadow_record,
)
from whiflash.engine.sequence import Sequence
from whiflash.engine.verify import Verdict
from whiflash.obs.round_log import RoundLog
from whiflash.sampling.stops import Emission
from whiflash.trajectories.log import TrajectoryLog
from whiflash.trajectories.record import TrajectoryRecord

MAX_RUNS = 4096


class Publisher:
    """Hands results to tickets, finished turns to the trajectory log, rounds to the round log.

    tokenizer: fingerprint of the one that stored ids belong to.
    """

    def __init__(
        self,
        model_label: str,
        trajectories: TrajectoryLog | None,
        rounds: RoundLog | None,
        tokenizer: str = "",
    ) -> None:
        self._model_label = model_label
        self._tokenizer = tokenizer
        self._segments = SegmentNumbers()
        self._trajectories = trajectories
        self._rounds = rounds
        self._num_steps = 0

    @property
    def needs(self) -> SignalNeeds:
        """Signals that the round log holds beyond those that the policy asks for."""
        return SignalNeeds(lookback=0 if self._rounds is None else LOOKBACK)

    def begin_log(self, curve: CostCurve, drafters: Mapping[str, Drafter]) -> None:
        """The head of the round log: what its rounds were measured on."""
        if self._rounds is not None:
            run = secrets.token_hex(8)
            self._rounds.begin(run_record(run, self._model_label, curve, drafters))

    def round(
        self, sequence: Sequence, draft: RowDraft | None, verdict: Verdict, emission: Emission
    ) -> None:
        """After the kept tokens were appended to the sequence. `draft` is None for the first
        token of an answer, which prefill brings."""
        acceptance = verdict.acceptance
        assert acceptance is not None
        kept = acceptance.tokens[: emission.num_kept]
        accepted = min(acceptance.accepted, emission.num_kept)
        arm = NONE if draft is None else draft.arm
        self._count_times(sequence)
        if draft is not None:
            sequence.usage.rounds += 1
            _count_round(sequence.usage.arm(arm), draft, acceptance.accepted,
                         len(acceptance.tokens), emission)  # fmt: skip
        logprobs = verdict.logprobs[: emission.num_kept]
        sequence.usage.completion_tokens += emission.num_kept
        sequence.logprobs += logprobs
        sequence.segments.append(Segment(arm, kept, emission.text, accepted))
        sequence.ticket.emit(
            Delta(sequence.index, kept, emission.text, arm, accepted, logprobs,
                  emission.finish_reason)
        )  # fmt: skip

    @staticmethod
    def _count_times(sequence: Sequence) -> None:
        now = time.perf_counter()
        if sequence.first_token_s == 0.0:
            sequence.first_token_s = now
            sequence.usage.prefill_ms = 1e3 * (now - sequence.admitted_s)
        sequence.usage.decode_ms = 1e3 * (now - sequence.first_token_s)

    def finish(self, sequence: Sequence) -> None:
        """The turn ended: its trajectory is logged, its completion handed over."""
        assert sequence.finish_reason is not None
        self._let_out(sequence, sequence.finish_reason)
        self._store(sequence)
        sequence.ticket.complete(
            Completion(
                index=sequence.index,
                text="".join(segment.text for segment in sequence.segments),
                token_ids=tuple(sequence.generated.tolist()),
                finish_reason=sequence.finish_reason,
                usage=sequence.usage,
                seed=sequence.ticket.seed,
                logprobs=tuple(sequence.logprobs),
                segments=tuple(sequence.segments),
                error=sequence.error,
                matched_stop=sequence.matched_stop,
            )
        )

    @staticmethod
    def _let_out(sequence: Sequence, reason: FinishReason) -> None:
        """Text that was withheld when the turn was ended from outside."""
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            return
        text = sequence.stops.flush()
        sequence.segments.append(Segment(NONE, (), text, 0))
        sequence.ticket.emit(Delta(sequence.index, (), text, NONE, 0, (), reason))

    def _store(self, sequence: Sequence) -> None:
        """Only what the target emitted and the client was given, and only of sound turns."""
        is_sound = sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        if self._trajectories is None or not sequence.request.store or not is_sound:
            return
        request = sequence.request
        self._trajectories.append(
            TrajectoryRecord(
                namespace=request.namespace,
                run_id=request.run_id,
                tokens=sequence.generated.copy(),
                segment=self._segments.next(request.namespace, request.run_id),
                model_label=self._model_label,
                finish_reason=str(sequence.finish_reason),
                subject=request.subject,
                template_id=request.agent,
                tokenizer=self._tokenizer,
            )
        )

    def log_rounds(self, rows: Rows[RowDraft], emitted: Rows[int], cost: StepCost) -> None:
        """One line per sequence-round; never text or ids."""
        if self._rounds is None:
            return
        self._num_steps += 1
        for row, count in zip(rows, emitted, strict=False):
            self._rounds.write(round_record(row, count, cost, self._num_steps, len(rows)))

    def log_settled(self, sequence_id: int, arm: str, feedback: Rows[Feedback]) -> None:
        """One line per proposal whose outcome is known now."""
        if self._rounds is not None:
            for entry in feedback:
                self._rounds.write(settled_record(sequence_id, arm, entry))

    def log_shadow(
        self, sequence_id: int, position: int, propensity: float,
        drafted: Mapping[str, DraftTree], regret: float | None,
    ) -> None:  # fmt: skip
        """One line per drawn root; its drafts' outcomes are lines of their own."""
        if self._rounds is not None:
            self._rounds.write(shadow_record(sequence_id, position, propensity, drafted, regret))

    def close(self) -> None:
        if self._rounds is not None:
            self._rounds.close()


class SegmentNumbers:
    """Counts the turns of runs, those that this process saw last; turns without a run are 0."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    def next(self, namespace: str, run_id: str) -> int:
        if not run_id:
            return 0
        number = self._counts.pop((namespace, run_id), 0)
        self._counts[namespace, run_id] = number + 1
        if len(self._counts) > MAX_RUNS:
            self._counts.popitem(last=False)
        return number


def _count_round(
    usage: ArmUsage, draft: RowDraft, accepted: int, num_tokens: int, emission: Emission
) -> None:
    usage.drafted += len(draft.tree)
    if emission.finish_reason is not None:
        usage.ending_rounds += 1
        usage.ending_emitted += emission.num_kept
        usage.discarded += num_tokens - emission.num_kept
        return
    usage.rounds += 1
    usage.emitted += emission.num_kept
    usage.accepted += accepted
    _add_ones(usage.drafted_at, draft.tree.max_depth)
    _add_ones(usage.accepted_at, accepted)


def _add_ones(counts: list[int], depth: int) -> None:
    counts.extend([0] * (depth - len(counts)))
    for position in range(depth):
        counts[position] += 1
