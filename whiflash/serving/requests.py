"""From a call and its exact prompt to the engine's request; what cannot be honoured is refused
here, before anything of the answer was sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from whiflash.core.constraint import ConstraintSpec
from whiflash.core.errors import InvalidRequestError, NotFoundError, PromptTooLongError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.serving.backend import ServedModel
from whiflash.serving.call import GenerationCall
from whiflash.serving.constraints import check_choice

MAX_NAME_CHARACTERS = 256
"""Of the names that a call gives to its run, agent and end user."""


def check_call(call: GenerationCall, model: ServedModel) -> None:
    """What can be judged without the prompt. Raises NotFoundError or InvalidRequestError."""
    if call.model and call.model != model.name:
        raise NotFoundError(
            f"the model {call.model!r} is not served here; this server has {model.name!r}", "model"
        )
    if call.drafter is not None and call.drafter not in model.arms:
        raise InvalidRequestError(
            f"drafter {call.drafter!r} is not configured; choose one of: {', '.join(model.arms)}",
            "drafter",
        )
    if call.max_draft is not None and call.max_draft < 0:
        raise InvalidRequestError("max_draft must be 0 or more", "max_draft")
    if call.max_tokens is not None and call.max_tokens < 1:
        raise InvalidRequestError("max_tokens must be at least 1", "max_tokens")
    if call.forced_ids and (call.params.seed is None or call.params.n != 1):
        raise InvalidRequestError(
            "forced_ids resume one answer: they need its seed, and n must be 1", "forced_ids"
        )
    for name in ("run_id", "agent", "subject"):
        _check_name(name, getattr(call, name))
    check_choice(call, model.has_constraints)
    _check_ids(model.vocab_size, "forced_ids", call.forced_ids)
    _check_ids(model.vocab_size, "stop_token_ids", call.params.stop_token_ids)
    _check_ids(model.vocab_size, "logit_bias", tuple(call.params.logit_bias))


def build_request(
    call: GenerationCall,
    model: ServedModel,
    prompt_ids: tuple[int, ...],
    prediction_ids: tuple[int, ...],
    namespace: str,
    deadline_s: float | None,
    constraint: ConstraintSpec | None = None,
    call_marker: str = "",
) -> GenerationRequest:
    """Raises InvalidRequestError, or PromptTooLongError where no token of an answer fits."""
    if not prompt_ids:
        raise InvalidRequestError("the prompt is empty; give at least one token", "prompt")
    _check_ids(model.vocab_size, "prompt", prompt_ids)
    params = _fit(call, model, len(prompt_ids))
    return GenerationRequest(
        prompt_ids=prompt_ids,
        params=params,
        namespace=namespace,
        run_id=call.run_id,
        prediction_ids=prediction_ids,
        drafter=call.drafter,
        max_draft=call.max_draft,
        forced_ids=call.forced_ids,
        store=call.store,
        shared_drafts=call.shared_drafts,
        agent=call.agent,
        subject=call.subject,
        deadline_s=deadline_s,
        constraint=constraint,
        call_marker=call_marker,
    )


def _fit(call: GenerationCall, model: ServedModel, num_prompt: int) -> SamplingParams:
    """The parameters with the answer's bound filled in. A bound beyond the context limit is the
    limit: the answer ends there with reason `length` either way."""
    limit = model.context_limit
    room = limit - num_prompt
    if model.kv_tokens and model.kv_tokens < limit:
        limit, room = model.kv_tokens, model.kv_tokens - num_prompt
    if room < 1:
        raise PromptTooLongError(
            f"the prompt has {num_prompt} tokens, the limit of prompt and answer is {limit}; "
            "shorten the prompt",
            "prompt",
        )
    wanted = room if call.max_tokens is None else min(call.max_tokens, room)
    params = call.params
    if wanted < params.min_tokens:
        raise InvalidRequestError(
            f"min_tokens {params.min_tokens} exceeds the {wanted} tokens that the answer may have",
            "min_tokens",
        )
    if len(call.forced_ids) > wanted:
        raise InvalidRequestError(
            f"forced_ids hold {len(call.forced_ids)} tokens, the answer may have {wanted}",
            "forced_ids",
        )
    return dataclasses.replace(params, max_tokens=wanted)


def _check_name(field: str, name: str) -> None:
    """They reach logs of trajectories, which are UTF-8."""
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    if len(name) > MAX_NAME_CHARACTERS or not is_text:
        raise InvalidRequestError(
            f"{field} must be text of at most {MAX_NAME_CHARACTERS} characters", field
        )


def _check_ids(vocab_size: int, name: str, ids: Sequence[int]) -> None:
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise InvalidRequestError(f"{name} must hold ids in 0..{vocab_size - 1}", name)
