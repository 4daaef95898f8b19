"""From a checked body to the call that it asks for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from whiflash.core.params import SamplingParams
from whiflash.serving.call import (
    ChatPrompt,
    GenerationCall,
    JsonFormat,
    Prompt,
    TextPrompt,
    TokenPrompt,
    ToolChoice,
)
from whiflash.serving.openai.chat_body import ChatBody, PromptFields
from whiflash.serving.openai.common_body import CommonBody, Extension
from whiflash.serving.openai.completion_body import CompletionBody
from whiflash.serving.openai.messages import Message
from whiflash.serving.openai.tools import NamedChoice, ObjectFormat, SchemaFormat

DEFAULT_COMPLETION_TOKENS = 16
_SEED_RANGE = 2**128
T = TypeVar("T")


def chat_call(body: ChatBody, idempotency_key: str = "") -> GenerationCall:
    """The call of a chat. Raises InvalidRequestError on a parameter out of range."""
    max_tokens = body.max_completion_tokens or body.max_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    plain = _plain_call(body, chat_prompt(body.messages, body), max_tokens, logprobs)
    return replace(
        plain,
        subject=plain.subject or body.safety_identifier or "",
        store=plain.store and body.store is not False,
        tool_choice=_tool_choice(body),
        json_format=_json_format(body),
        prediction=body.prediction.text() if body.prediction else "",
        idempotency_key=idempotency_key,
    )


def completion_calls(body: CompletionBody, idempotency_key: str = "") -> list[GenerationCall]:
    """One call per prompt; each has a part of the key to itself."""
    max_tokens = body.max_tokens or DEFAULT_COMPLETION_TOKENS
    return [
        replace(
            _plain_call(body, _raw_prompt(prompt), max_tokens, body.logprobs),
            idempotency_key=f"{idempotency_key}/{number}" if idempotency_key else "",
        )
        for number, prompt in enumerate(body.prompts())
    ]


def chat_prompt(messages: Sequence[Message], body: PromptFields) -> ChatPrompt:
    """Messages and tools as the chat format takes them."""
    return ChatPrompt(
        messages=tuple(message.to_prompt() for message in messages),
        tools=tuple(tool.to_prompt() for tool in body.tools or ()),
        template_values=body.template_values(),
    )


def _raw_prompt(prompt: str | Sequence[int]) -> Prompt:
    return TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(tuple(prompt))


def _params(body: CommonBody, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """OpenAI's defaults where a field is missing: temperature 1, everything else off."""
    min_tokens = body.min_tokens or 0
    return SamplingParams(
        temperature=_or(body.temperature, 1.0),
        top_k=max(0, _or(body.top_k, 0)),
        top_p=_or(body.top_p, 1.0),
        min_p=_or(body.min_p, 0.0),
        logit_bias={int(token): bias for token, bias in (body.logit_bias or {}).items()},
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        min_tokens=min_tokens,
        max_tokens=max(1, min_tokens) if max_tokens is None else max_tokens,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        seed=_seed(body.seed),
        n=_or(body.n, 1),
        logprobs=logprobs,
    )


def _plain_call(
    body: CommonBody, prompt: Prompt, max_tokens: int | None, logprobs: int | None
) -> GenerationCall:
    extension = body.whiflash or Extension()
    return GenerationCall(
        prompt=prompt,
        params=_params(body, max_tokens, logprobs),
        model=body.model,
        max_tokens=max_tokens,
        drafter=extension.drafter,
        max_draft=extension.max_draft,
        run_id=extension.run_id,
        agent=extension.agent,
        subject=body.user or "",
        store=not extension.no_store,
        shared_drafts=not extension.no_shared_drafts,
    )


def _seed(seed: int | str | None) -> int | None:
    """Negative seeds are numbered from the top, so that each seed stays one of its own."""
    return None if seed is None else int(seed) % _SEED_RANGE


def _tool_choice(body: ChatBody) -> ToolChoice:
    is_parallel = body.parallel_tool_calls is not False
    if not body.tools:
        return ToolChoice("none")
    if isinstance(body.tool_choice, NamedChoice):
        return ToolChoice("named", body.tool_choice.function.name, is_parallel)
    return ToolChoice(body.tool_choice or "auto", "", is_parallel)


def _json_format(body: ChatBody) -> JsonFormat | None:
    match body.response_format:
        case ObjectFormat():
            return JsonFormat()
        case SchemaFormat(json_schema=described):
            return JsonFormat(described.schema_ if described.schema_ is not None else None)
        case _:
            return None


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
