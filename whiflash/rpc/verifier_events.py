"""What a verifier reports of a running request, as messages and back."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.core.results import Completion, Delta, FinishReason, TokenLogprob
from whiflash.core.usage import ArmUsage, Usage
from whiflash.rpc.v1 import verifier_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """How a choice ended; its text, ids, log-probabilities and segments are those of its deltas.

    num_tokens: ids of the choice, forced ones included.
    """

    index: int
    finish_reason: FinishReason
    usage: Usage
    num_tokens: int
    error: str | None = None
    matched_stop: str | int | None = None

    @classmethod
    def of(cls, completion: Completion) -> ChoiceEnd:
        """Of a completion whose deltas were sent."""
        return cls(
            completion.index, completion.finish_reason, completion.usage,
            len(completion.token_ids), completion.error, completion.matched_stop,
        )  # fmt: skip


def event_message(event: Delta | ChoiceEnd) -> pb.GenerateEvent:
    """One event."""
    if isinstance(event, Delta):
        return pb.GenerateEvent(delta=_delta_message(event))
    return pb.GenerateEvent(end=_end_message(event))


def read_event(message: pb.GenerateEvent) -> Delta | ChoiceEnd:
    """Raises ValueError on an event of an unknown kind."""
    kind = message.WhichOneof("kind")
    if kind == "delta":
        return _read_delta(message.delta)
    if kind == "end":
        return _read_end(message.end)
    raise ValueError("the verifier sent an event of an unknown kind")


def _delta_message(delta: Delta) -> pb.Delta:
    return pb.Delta(
        index=delta.index,
        token_ids=delta.token_ids,
        text=delta.text,
        arm=delta.arm,
        accepted=delta.accepted,
        logprobs=[_logprob_message(entry) for entry in delta.logprobs],
        finish_reason=None if delta.finish_reason is None else delta.finish_reason.value,
    )


def _read_delta(message: pb.Delta) -> Delta:
    reason = FinishReason(message.finish_reason) if message.HasField("finish_reason") else None
    return Delta(
        index=message.index,
        token_ids=tuple(message.token_ids),
        text=message.text,
        arm=message.arm,
        accepted=message.accepted,
        logprobs=tuple(_read_logprob(entry) for entry in message.logprobs),
        finish_reason=reason,
    )


def _logprob_message(entry: TokenLogprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token_id=entry.token_id,
        logprob=entry.logprob,
        top_ids=[token for token, _ in entry.top],
        top_logprobs=[logprob for _, logprob in entry.top],
    )


def _read_logprob(message: pb.TokenLogprob) -> TokenLogprob:
    top = tuple(zip(message.top_ids, message.top_logprobs, strict=True))
    return TokenLogprob(message.token_id, message.logprob, top)


def _end_message(end: ChoiceEnd) -> pb.End:
    message = pb.End(
        index=end.index,
        finish_reason=end.finish_reason.value,
        usage=_usage_message(end.usage),
        error=end.error,
        num_tokens=end.num_tokens,
    )
    if isinstance(end.matched_stop, str):
        message.stop_string = end.matched_stop
    elif end.matched_stop is not None:
        message.stop_token_id = end.matched_stop
    return message


def _read_end(message: pb.End) -> ChoiceEnd:
    matched: str | int | None = None
    if message.HasField("stop_string"):
        matched = message.stop_string
    elif message.HasField("stop_token_id"):
        matched = message.stop_token_id
    return ChoiceEnd(
        index=message.index,
        finish_reason=FinishReason(message.finish_reason),
        usage=_read_usage(message.usage),
        num_tokens=message.num_tokens,
        error=message.error if message.HasField("error") else None,
        matched_stop=matched,
    )


def _usage_message(usage: Usage) -> pb.ChoiceUsage:
    return pb.ChoiceUsage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        rounds=usage.rounds,
        preemptions=usage.preemptions,
        queue_ms=usage.queue_ms,
        prefill_ms=usage.prefill_ms,
        decode_ms=usage.decode_ms,
        arms={name: _arm_message(arm) for name, arm in usage.arms.items()},
    )


def _read_usage(message: pb.ChoiceUsage) -> Usage:
    return Usage(
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        completion_tokens=message.completion_tokens,
        rounds=message.rounds,
        preemptions=message.preemptions,
        queue_ms=message.queue_ms,
        prefill_ms=message.prefill_ms,
        decode_ms=message.decode_ms,
        arms={name: _read_arm(arm) for name, arm in message.arms.items()},
    )


def _arm_message(arm: ArmUsage) -> pb.ChoiceArmUsage:
    return pb.ChoiceArmUsage(
        rounds=arm.rounds,
        emitted=arm.emitted,
        drafted=arm.drafted,
        accepted=arm.accepted,
        ending_rounds=arm.ending_rounds,
        ending_emitted=arm.ending_emitted,
        discarded=arm.discarded,
        drafted_at=arm.drafted_at,
        accepted_at=arm.accepted_at,
    )


def _read_arm(message: pb.ChoiceArmUsage) -> ArmUsage:
    return ArmUsage(
        rounds=message.rounds,
        emitted=message.emitted,
        drafted=message.drafted,
        accepted=message.accepted,
        ending_rounds=message.ending_rounds,
        ending_emitted=message.ending_emitted,
        discarded=message.discarded,
        drafted_at=list(message.drafted_at),
        accepted_at=list(message.accepted_at),
    )
