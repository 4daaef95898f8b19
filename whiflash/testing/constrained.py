"""Requests whose answers must have a form, and requests that are resumed, for random scenarios."""

from __future__ import annotations

import dataclasses
import json
import random
from functools import lru_cache

import jsonschema

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.chat.hermes import HermesParser
from whiflash.core.constraint import ConstraintSpec, JsonAnswer, Reasoning, ToolCalls, ToolSchema
from whiflash.core.protocols import TargetInfo, Tokenizer
from whiflash.core.results import FinishReason
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.plain import PlainAnswer
from whiflash.testing.requests import Planned
from whiflash.testing.schemas import random_object_schema, random_schema, with_definitions

CONSTRAINED_SHARE = 0.15
RESUMED_SHARE = 0.2
_CALL = 'so: <tool_call>\n{"name": "'


@lru_cache(maxsize=4)
def toy_compiler(tokenizer: HFTokenizer, info: TargetInfo) -> GrammarCompiler:
    """One per toy, so that its vocabulary is read once."""
    return GrammarCompiler(tokenizer, info)


def random_spec(rng: random.Random) -> ConstraintSpec:
    """Any demand that a request can make; texts of all of them fit the toy's symbols."""
    reasoning = rng.choice([*[Reasoning.NONE] * 4, Reasoning.OPEN, Reasoning.OPTIONAL])
    answer = JsonAnswer(_schema(rng) if rng.random() < 0.9 else None, reasoning)
    if rng.random() < 0.6:
        return answer
    tools = tuple(
        ToolSchema(name, json.dumps(with_definitions(random_object_schema(rng), rng)))
        for name in rng.sample(("find", "put", "put_all"), rng.randint(1, 3))
    )
    is_required = rng.random() < 0.5
    return ToolCalls(
        tools,
        is_required=is_required,
        named=tools[0].name if is_required and rng.random() < 0.4 else None,
        is_single=rng.random() < 0.5,
        otherwise=answer if not is_required and rng.random() < 0.3 else None,
        reasoning=reasoning,
    )


def _schema(rng: random.Random) -> str:
    return json.dumps(with_definitions(random_schema(rng), rng))


def maybe_constrained(
    plan: Planned,
    rng: random.Random,
    tokenizer: Tokenizer,
    info: TargetInfo,
    share: float = CONSTRAINED_SHARE,
) -> Planned:
    """The plan, or with some chance one whose answer must have a form. Where calls are free to
    come, some answers have begun one already, since the toy would hardly ever do so itself."""
    if rng.random() >= share:
        return plan
    spec = random_spec(rng)
    room = rng.choice([plan.request.params.max_tokens, 60, 90])
    params = dataclasses.replace(
        plan.request.params, ignore_eos=False, max_tokens=max(room, plan.request.params.min_tokens),
        min_tokens=plan.request.params.min_tokens if rng.random() < 0.3 else 0,
        stop=plan.request.params.stop if rng.random() < 0.3 else (), stop_token_ids=(),
    )  # fmt: skip
    forced: tuple[int, ...] = ()
    is_free = isinstance(spec, ToolCalls) and not (spec.is_required or spec.otherwise)
    if is_free and rng.random() < 0.8:
        text = _CALL[: rng.randrange(4, len(_CALL) + 1)]
        forced = tuple(tokenizer.encode(text)[: params.max_tokens - 1])
    request = dataclasses.replace(plan.request, params=params, constraint=spec, forced_ids=forced)
    assert isinstance(tokenizer, HFTokenizer)
    grammar = toy_compiler(tokenizer, info).compile(spec)
    return dataclasses.replace(plan, request=request, grammar=grammar)


def require_valid(plan: Planned, answer: PlainAnswer, tokenizer: Tokenizer, eos_id: int) -> bool:
    """Raises AssertionError or jsonschema's ValidationError where an answer that ended by itself
    has not the form that was asked for. False where it did not end by itself."""
    spec = plan.request.constraint
    if spec is None or not answer.token_ids or answer.token_ids[-1] != eos_id:
        return False
    text = tokenizer.decode(answer.token_ids[:-1])
    check_text(spec, text)
    return True


def check_text(spec: ConstraintSpec, text: str) -> None:
    """See `require_valid`; `text` is a whole answer."""
    parser = HermesParser(
        has_calls=isinstance(spec, ToolCalls),
        has_reasoning=spec.reasoning is not Reasoning.NONE,
        in_reasoning=spec.reasoning is Reasoning.OPEN,
    )
    parser.feed(text)
    parser.finish(FinishReason.STOP)
    message = parser.message()
    assert message.broken == (), text
    if isinstance(spec, JsonAnswer):
        assert not message.is_partial, text
        _check_value(spec.schema, message.content)
        return
    schemas = {tool.name: tool.parameters for tool in spec.tools}
    for call in message.calls:
        _check_value(schemas[call.name], call.arguments)
    is_forced = spec.is_required or spec.named is not None
    assert message.calls or not is_forced, text
    assert len(message.calls) <= 1 or not spec.is_single, text
    assert spec.named is None or {call.name for call in message.calls} == {spec.named}, text
    is_free = not is_forced and spec.otherwise is None
    assert is_free or not message.is_partial, text
    if is_forced:
        assert message.content == "", text
    elif spec.otherwise is not None and not message.calls:
        _check_value(spec.otherwise.schema, message.content)


def _check_value(schema: str | None, text: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema or '{"type": "object"}'))
    validator.validate(json.loads(text))


def maybe_resumed(plan: Planned, rng: random.Random, answers: list[PlainAnswer]) -> Planned | None:
    """With some chance, the same call again by a client that has a part of the answer."""
    (answer, *others) = answers
    can_end_early = answer.finish_reason is FinishReason.ERROR
    if others or can_end_early or len(answer.token_ids) < 2 or rng.random() >= RESUMED_SHARE:
        return None
    cut = rng.randrange(max(1, len(plan.request.forced_ids)), len(answer.token_ids))
    request = dataclasses.replace(plan.request, forced_ids=answer.token_ids[:cut])
    return dataclasses.replace(plan, request=request)
