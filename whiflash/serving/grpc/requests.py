"""Calls of the public API as the records that all front ends share."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from whiflash.api.v1 import call_pb2 as pb
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import SamplingParams
from whiflash.serving.call import GenerationCall, JsonFormat, ToolChoice
from whiflash.serving.grpc.json_text import read_object
from whiflash.serving.grpc.prompts import read_prompt

_SCALARS = frozenset(
    {
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "min_tokens",
        "n",
        "logprobs",
    }
)
_DEFAULTS = SamplingParams()
_MODES = {
    pb.TOOL_CHOICE_MODE_UNSPECIFIED: "auto",
    pb.TOOL_CHOICE_MODE_AUTO: "auto",
    pb.TOOL_CHOICE_MODE_NONE: "none",
    pb.TOOL_CHOICE_MODE_REQUIRED: "required",
    pb.TOOL_CHOICE_MODE_NAMED: "named",
}


def refuse_unknown(message: Message) -> None:
    """A newer client's field may change the text, so it cannot be ignored.
    Raises InvalidRequestError; the message has lost its unknown fields then."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise InvalidRequestError(
            "the request holds fields that this server does not know; update the server, or use "
            "an older client"
        )


def read_call(call: pb.Call) -> GenerationCall:
    """Raises InvalidRequestError naming the field that cannot be honoured."""
    max_tokens = call.max_tokens if call.HasField("max_tokens") else None
    return GenerationCall(
        prompt=read_prompt(call.prompt),
        params=_read_sampling(call.sampling, max_tokens),
        model=call.model,
        max_tokens=max_tokens,
        tool_choice=_read_choice(call.tool_choice),
        json_format=_read_format(call),
        prediction=call.prediction,
        drafter=call.drafter if call.HasField("drafter") else None,
        max_draft=call.max_draft if call.HasField("max_draft") else None,
        run_id=call.run_id,
        agent=call.agent,
        subject=call.subject,
        store=not call.no_store,
        shared_drafts=not call.no_shared_drafts,
        forced_ids=tuple(call.forced_ids),
        idempotency_key=call.idempotency_key,
    )


def _read_sampling(sampling: pb.Sampling, max_tokens: int | None) -> SamplingParams:
    fields = ((field.name, value) for field, value in sampling.ListFields())
    given: dict[str, Any] = {name: value for name, value in fields if name in _SCALARS}
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    elif given.get("min_tokens", 0) > _DEFAULTS.max_tokens:
        given["max_tokens"] = given["min_tokens"]  # unbounded, but records are checked as a whole
    if sampling.logit_bias:
        given["logit_bias"] = dict(sampling.logit_bias)
    return SamplingParams(
        **given,
        stop=tuple(sampling.stop),
        stop_token_ids=tuple(sampling.stop_token_ids),
        ignore_eos=sampling.ignore_eos,
        seed=_read_seed(sampling),
    )


def _read_seed(sampling: pb.Sampling) -> int | None:
    if not sampling.HasField("seed"):
        return None
    return (sampling.seed.high << 64) | sampling.seed.low


def _read_choice(choice: pb.ToolChoice) -> ToolChoice:
    mode = _MODES.get(choice.mode)
    if mode is None:
        raise InvalidRequestError(f"tool choice {choice.mode} is not known here", "tool_choice")
    if (mode == "named") != bool(choice.name):
        raise InvalidRequestError(
            "tool_choice.name belongs to mode NAMED, and must be given there", "tool_choice"
        )
    return ToolChoice(mode, choice.name, is_parallel=not choice.single_call)


def _read_format(call: pb.Call) -> JsonFormat | None:
    if not call.HasField("json_format"):
        return None
    text = call.json_format.schema_json
    return JsonFormat(read_object(text, "json_format") if text else None)
