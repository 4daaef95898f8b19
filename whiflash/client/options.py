"""Everything a call may ask for, as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from whiflash.api.v1 import call_pb2 as pb
from whiflash.client.chat import Chat, chat_message, to_json

Prompt = str | Sequence[int] | Chat
"""Text that goes to the model as it is, exact token ids, or a conversation."""


class CallOptions(TypedDict, total=False):
    """Options of a call; what is left out has the server's default (docs/grpc.md).

    tool_choice: "auto", "none", "required", or the name of the tool that must be called.
    json_schema: the answer follows it; None for any JSON object.
    """

    model: str
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    logit_bias: Mapping[int, float]
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_tokens: int
    stop: Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    seed: int
    n: int
    logprobs: int
    tool_choice: str
    single_call: bool
    json_schema: Mapping[str, Any] | None
    prediction: str
    drafter: str
    max_draft: int
    run_id: str
    agent: str
    subject: str
    no_store: bool
    no_shared_drafts: bool
    forced_ids: Sequence[int]
    idempotency_key: str


_SAMPLING = frozenset(pb.Sampling.DESCRIPTOR.fields_by_name)
_MODES = {
    "auto": pb.TOOL_CHOICE_MODE_AUTO,
    "none": pb.TOOL_CHOICE_MODE_NONE,
    "required": pb.TOOL_CHOICE_MODE_REQUIRED,
}


def prompt_message(prompt: Prompt) -> pb.Prompt:
    """The prompt as a message."""
    if isinstance(prompt, Chat):
        return pb.Prompt(chat=chat_message(prompt))
    if isinstance(prompt, str):
        return pb.Prompt(text=prompt)
    return pb.Prompt(token_ids=pb.TokenIds(ids=prompt))


def call_message(prompt: Prompt, options: CallOptions) -> pb.Call:
    """The call as a message. Raises ValueError or TypeError on options it has no place for."""
    given: dict[str, Any] = dict(options)
    unknown = given.keys() - CallOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"no such option: {min(unknown)}")
    sampling = {name: given.pop(name) for name in _SAMPLING & given.keys()}
    if "seed" in sampling:
        sampling["seed"] = seed_message(sampling["seed"])
    choice = _tool_choice(given.pop("tool_choice", None), given.pop("single_call", False))
    json_format = _json_format(given.pop("json_schema")) if "json_schema" in given else None
    return pb.Call(
        prompt=prompt_message(prompt),
        sampling=pb.Sampling(**sampling),
        tool_choice=choice,
        json_format=json_format,
        **given,
    )


def seed_message(seed: int) -> pb.Seed:
    """Raises ValueError outside 0 .. 2^128 - 1."""
    if not 0 <= seed < 2**128:
        raise ValueError(f"seed must be a non-negative integer below 2^128, got {seed}")
    return pb.Seed(low=seed & (2**64 - 1), high=seed >> 64)


def _json_format(schema: Mapping[str, Any] | None) -> pb.JsonFormat:
    return pb.JsonFormat(schema_json="" if schema is None else to_json(schema))


def _tool_choice(choice: str | None, single_call: bool) -> pb.ToolChoice | None:
    if choice is None and not single_call:
        return None
    mode = _MODES.get(choice or "auto", pb.TOOL_CHOICE_MODE_NAMED)
    name = choice if mode == pb.TOOL_CHOICE_MODE_NAMED else None
    return pb.ToolChoice(mode=mode, name=name or "", single_call=single_call)
