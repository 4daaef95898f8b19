"""Prepared requests as messages and back: one record, one message, nothing lost."""

from __future__ import annotations

from collections.abc import Iterable

from whiflash.core.constraint import (
    ConstraintSpec,
    JsonAnswer,
    Reasoning,
    ToolCalls,
    ToolSchema,
)
from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.rpc.v1 import verifier_service_pb2 as pb

SEED_BYTES = 16


def seed_bytes(seed: int) -> bytes:
    """128 bits, most significant byte first."""
    return seed.to_bytes(SEED_BYTES, "big")


def read_seed(data: bytes) -> int:
    """Raises InvalidRequestError unless `data` is 16 bytes."""
    if len(data) != SEED_BYTES:
        raise InvalidRequestError(f"a seed has {SEED_BYTES} bytes, got {len(data)}", "seed")
    return int.from_bytes(data, "big")


def request_message(request: GenerationRequest) -> pb.PreparedRequest:
    """See core.params.GenerationRequest."""
    return pb.PreparedRequest(
        prompt_ids=request.prompt_ids,
        params=_params_message(request.params),
        namespace=request.namespace,
        run_id=request.run_id,
        prediction_ids=request.prediction_ids,
        drafter=request.drafter,
        max_draft=request.max_draft,
        forced_ids=request.forced_ids,
        store=request.store,
        deadline_s=request.deadline_s,
        constraint=_constraint_message(request.constraint),
        call_marker=request.call_marker,
        agent=request.agent,
        subject=request.subject,
        shared_drafts=request.shared_drafts,
    )


def read_request(message: pb.PreparedRequest) -> GenerationRequest:
    """Raises InvalidRequestError on values out of range."""
    return GenerationRequest(
        prompt_ids=tuple(message.prompt_ids),
        params=_read_params(message.params),
        namespace=message.namespace,
        run_id=message.run_id,
        prediction_ids=tuple(message.prediction_ids),
        drafter=message.drafter if message.HasField("drafter") else None,
        max_draft=message.max_draft if message.HasField("max_draft") else None,
        forced_ids=tuple(message.forced_ids),
        store=message.store,
        deadline_s=message.deadline_s if message.HasField("deadline_s") else None,
        constraint=_read_constraint(message),
        call_marker=message.call_marker,
        agent=message.agent,
        subject=message.subject,
        shared_drafts=message.shared_drafts,
    )


def _params_message(params: SamplingParams) -> pb.RequestParams:
    return pb.RequestParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        logit_bias=dict(params.logit_bias),
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        min_tokens=params.min_tokens,
        max_tokens=params.max_tokens,
        stop=params.stop,
        stop_token_ids=params.stop_token_ids,
        ignore_eos=params.ignore_eos,
        seed=None if params.seed is None else seed_bytes(params.seed),
        n=params.n,
        logprobs=params.logprobs,
    )


def _read_params(message: pb.RequestParams) -> SamplingParams:
    return SamplingParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        min_p=message.min_p,
        logit_bias=dict(message.logit_bias),
        repetition_penalty=message.repetition_penalty,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        min_tokens=message.min_tokens,
        max_tokens=message.max_tokens,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        seed=read_seed(message.seed) if message.HasField("seed") else None,
        n=message.n,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
    )


def _constraint_message(constraint: ConstraintSpec | None) -> pb.RequestConstraint | None:
    if constraint is None:
        return None
    if isinstance(constraint, JsonAnswer):
        return pb.RequestConstraint(json=_json_message(constraint))
    return pb.RequestConstraint(
        calls=pb.ToolCalls(
            tools=_tool_messages(constraint.tools),
            is_required=constraint.is_required,
            named=constraint.named,
            is_single=constraint.is_single,
            otherwise=None if constraint.otherwise is None else _json_message(constraint.otherwise),
            reasoning=constraint.reasoning.value,
        )
    )


def _tool_messages(tools: Iterable[ToolSchema]) -> list[pb.ToolSchema]:
    return [pb.ToolSchema(name=tool.name, parameters=tool.parameters) for tool in tools]


def _json_message(answer: JsonAnswer) -> pb.JsonAnswer:
    return pb.JsonAnswer(schema=answer.schema, reasoning=answer.reasoning.value)


def _read_constraint(message: pb.PreparedRequest) -> ConstraintSpec | None:
    if not message.HasField("constraint"):
        return None
    kind = message.constraint.WhichOneof("kind")
    if kind == "json":
        return _read_json(message.constraint.json)
    if kind == "calls":
        return _read_calls(message.constraint.calls)
    raise InvalidRequestError("the request holds a constraint of an unknown kind", "constraint")


def _read_calls(calls: pb.ToolCalls) -> ToolCalls:
    return ToolCalls(
        tools=tuple(ToolSchema(tool.name, tool.parameters) for tool in calls.tools),
        is_required=calls.is_required,
        named=calls.named if calls.HasField("named") else None,
        is_single=calls.is_single,
        otherwise=_read_json(calls.otherwise) if calls.HasField("otherwise") else None,
        reasoning=Reasoning(calls.reasoning),
    )


def _read_json(answer: pb.JsonAnswer) -> JsonAnswer:
    schema = answer.schema if answer.HasField("schema") else None
    return JsonAnswer(schema, Reasoning(answer.reasoning))
