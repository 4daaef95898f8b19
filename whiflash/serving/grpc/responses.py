"""What a running call hands out, as messages of the public API."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from whiflash.api.v1 import call_pb2
from whiflash.api.v1 import generation_service_pb2 as service_pb
from whiflash.api.v1 import stream_pb2 as pb
from whiflash.chat.events import EventKind, ParseEvent
from whiflash.chat.messages import ParsedMessage
from whiflash.core.results import FinishReason, TokenLogprob
from whiflash.core.usage import ArmUsage
from whiflash.serving.caller import CallContext, Scope
from whiflash.serving.stream import Ended, Piece, Queued, Started, StreamEvent

_KINDS = {
    EventKind.REASONING: pb.PARSE_EVENT_KIND_REASONING,
    EventKind.CONTENT: pb.PARSE_EVENT_KIND_CONTENT,
    EventKind.CALL_START: pb.PARSE_EVENT_KIND_CALL_START,
    EventKind.ARGUMENTS: pb.PARSE_EVENT_KIND_ARGUMENTS,
    EventKind.CALL_END: pb.PARSE_EVENT_KIND_CALL_END,
    EventKind.CALL_BROKEN: pb.PARSE_EVENT_KIND_CALL_BROKEN,
}
_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
    FinishReason.DEADLINE: pb.FINISH_REASON_DEADLINE,
    FinishReason.ERROR: pb.FINISH_REASON_ERROR,
}
_FINGERPRINT_BYTES = 16


def prompt_fingerprint(prompt_ids: Sequence[int]) -> bytes:
    """16 bytes that tell prompts apart, so that a resumed call is not continued on another one
    (a template may print today's date)."""
    joined = ",".join(map(str, prompt_ids)).encode()
    return hashlib.blake2b(joined, digest_size=_FINGERPRINT_BYTES).digest()


@dataclass(frozen=True, slots=True)
class ResponseWriter:
    """Of one call. Per-arm figures tell what others have stored: they are for scope debug."""

    context: CallContext

    def event(self, event: StreamEvent) -> service_pb.GenerateResponse:
        """The message of one stream event."""
        if isinstance(event, Queued):
            return service_pb.GenerateResponse(queued=pb.Queued(waited_s=event.waited_s))
        if isinstance(event, Started):
            return service_pb.GenerateResponse(started=self.started(event))
        if isinstance(event, Piece):
            return service_pb.GenerateResponse(piece=self._piece(event))
        return service_pb.GenerateResponse(ended=self._ended(event))

    def started(self, event: Started) -> pb.Started:
        low, high = event.seed & (2**64 - 1), event.seed >> 64
        return pb.Started(
            request_id=self.context.request_id,
            prompt_tokens=len(event.prompt_ids),
            seed=call_pb2.Seed(low=low, high=high),
            prompt_fingerprint=prompt_fingerprint(event.prompt_ids),
        )

    def choice(self, event: Ended) -> service_pb.Choice:
        """A whole answer. Its events are left out: the message says it all."""
        completion, ended = event.completion, self._ended(event)
        ended.ClearField("events")
        return service_pb.Choice(
            token_ids=completion.token_ids,
            text=completion.text,
            logprobs=[_logprob(entry) for entry in completion.logprobs],
            ended=ended,
        )

    @property
    def _may_debug(self) -> bool:
        return self.context.caller.may(Scope.DEBUG)

    def _id_prefix(self, index: int) -> str:
        """Ids of calls are unique within a conversation, and the same when it is resumed."""
        return f"call-{self.context.request_id}-{index}-"

    def _piece(self, event: Piece) -> pb.Piece:
        return pb.Piece(
            index=event.index,
            token_ids=event.token_ids,
            text=event.text,
            events=[_parse_event(entry) for entry in event.events],
            logprobs=[_logprob(entry) for entry in event.logprobs],
            arm=event.arm if self._may_debug else None,
            accepted=event.accepted if self._may_debug else None,
        )

    def _ended(self, event: Ended) -> pb.Ended:
        completion, message = event.completion, event.message
        is_call = message is not None and message.finish_reason(FinishReason.STOP) != "stop"
        reason = _REASONS[completion.finish_reason]
        if is_call and completion.finish_reason is FinishReason.STOP:
            reason = pb.FINISH_REASON_TOOL_CALLS
        ended = pb.Ended(
            index=event.index,
            finish_reason=reason,
            events=[_parse_event(entry) for entry in event.events],
            message=None if message is None else _message(message, self._id_prefix(event.index)),
            usage=self._usage(event),
            error=completion.error or "",
        )
        if isinstance(completion.matched_stop, int):
            ended.stop_token_id = completion.matched_stop
        elif completion.matched_stop is not None:
            ended.stop_string = completion.matched_stop
        return ended

    def _usage(self, event: Ended) -> pb.Usage:
        usage = event.completion.usage
        written = pb.Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=len(event.completion.token_ids),
            accepted_prediction_tokens=event.accepted_prediction_tokens,
            rejected_prediction_tokens=event.rejected_prediction_tokens,
            queue_ms=usage.queue_ms,
            prefill_ms=usage.prefill_ms,
            decode_ms=usage.decode_ms,
        )
        if self._may_debug:
            written.rounds = usage.rounds
            for name, arm in usage.arms.items():
                written.arms[name].CopyFrom(_arm_usage(arm))
        return written


def _parse_event(event: ParseEvent) -> pb.ParseEvent:
    return pb.ParseEvent(kind=_KINDS[event.kind], text=event.text, call=event.call)


def _logprob(entry: TokenLogprob) -> pb.TokenLogprob:
    top = [pb.TopLogprob(token_id=token, logprob=value) for token, value in entry.top]
    return pb.TokenLogprob(token_id=entry.token_id, logprob=entry.logprob, top=top)


def _message(message: ParsedMessage, id_prefix: str) -> pb.AssistantMessage:
    calls = [
        call_pb2.ToolCall(id=f"{id_prefix}{number}", name=call.name, arguments=call.arguments)
        for number, call in enumerate(message.calls)
    ]
    broken = [pb.BrokenCall(text=call.text, reason=call.reason) for call in message.broken]
    return pb.AssistantMessage(
        content=message.content,
        reasoning=message.reasoning,
        tool_calls=calls,
        broken_calls=broken,
        is_partial=message.is_partial,
        text=message.text,
        is_regular=message.is_regular,
    )


def _arm_usage(arm: ArmUsage) -> pb.ArmUsage:
    return pb.ArmUsage(
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
