"""What a schema's grammar allows is valid, character for character; what it cannot say is refused.

The grammar library ignores `not`, `contains`, `uniqueItems`, what stands beside `anyOf`, and lets
control characters into strings of bounded length: each would be a wrong answer with status 200."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.chat.constraints.schema import checked_schema
from whiflash.core.constraint import JsonAnswer
from whiflash.core.draft import DraftTree
from whiflash.core.errors import InvalidRequestError
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.constrained import check_text
from whiflash.testing.schemas import random_schema, with_definitions
from whiflash.testing.toy import EOS_ID

STRING = {"type": "string"}
CLOSING = '"}]'


def spec(schema: object) -> JsonAnswer:
    return JsonAnswer(json.dumps(schema))


def random_answer(
    compiler: GrammarCompiler, tokenizer: HFTokenizer, wanted: JsonAnswer, rng: random.Random
) -> str | None:
    """A random walk through the masks, which ends where it may; None where it did not end."""
    state, ids = compiler.compile(wanted).start(), []
    for _ in range(600):
        allowed = np.flatnonzero(state.masks(DraftTree.empty()).row(0)).tolist()
        assert allowed, f"nothing may follow {tokenizer.decode(ids)!r}"
        closing = [i for i in allowed if (tokenizer.id_to_token(i) or "") in CLOSING]
        is_closing = closing and rng.random() < 0.3
        token = EOS_ID if EOS_ID in allowed else rng.choice(closing if is_closing else allowed)
        assert state.advance(token)
        if state.is_ended:
            return tokenizer.decode(ids)
        ids.append(token)
    return None


def test_all_that_random_schemas_allow_is_valid(toy_compiler: GrammarCompiler) -> None:
    tokenizer = toy_compiler._tokenizer
    num_ended = 0
    for seed in range(150):
        rng = random.Random(seed)
        wanted = spec(with_definitions(random_schema(rng), rng))
        for _ in range(3):
            text = random_answer(toy_compiler, tokenizer, wanted, rng)
            if text is not None:
                num_ended += 1
                check_text(wanted, text)
    assert num_ended > 400


def accepts(compiler: GrammarCompiler, wanted: JsonAnswer, text: str, tokenizer: Any) -> bool:
    state = compiler.compile(wanted).start()
    ids = tokenizer.encode(text)
    return all(state.advance(token) for token in ids) and state.advance(tokenizer.eos_id)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (STRING, ['"a\\n\\"b"', '"é☃😀"', '"\\u00e9"'], ['"\t"', "1", '"a', '"\\x"']),
        ({"maxLength": 3}, ['""', '"\\n\\"\\\\"', '"é☃😀"'], ['"abcd"', '"a\tb"', '"\\u00e9"']),
        ({"type": "string", "minLength": 2}, ['"ab"', '"\\\\\\""'], ['"a"', '"\\n"', '""']),
        ({"pattern": "^a(x[0-9]+)?$"}, ['"a"', '"ax77"'], ['"a7"', '"ax"', '"b"']),
        ({"pattern": '^["\\\\\\n]+$'}, ['"\\""', '"\\n\\\\"'], ['"n"', '"\n"']),
        ({"type": "object"}, ["{}", '{"a": [1, {"b": null}]}'], ["[]", "{'a': 1}", "{"]),
        (
            {"properties": {"a": {"type": "integer"}}, "additionalProperties": True},
            ['{"a": 1}', "{}"],
            ['{"a": "x"}', '{"\\u0061": "x"}', '{"b": 1}', '{"a": 1, "a": 2}'],
        ),
        ({"type": ["string", "null"], "minLength": 1}, ['"a"', "null"], ['""', "1"]),
        ({"enum": ["a", 1, None], "type": ["string", "integer"]}, ['"a"', "1"], ["null", "2"]),
        ({"const": {"k": [1, "é"]}}, ['{"k":[1,"é"]}'], ['{"k":[1]}']),
        ({"prefixItems": [STRING, {"type": "integer"}]}, ['["a", 1]', "[]"], ['["a", 1, 2]']),
        ({"type": "number", "minimum": 0, "maximum": 1}, ["1", "0.25"], ["1.5", "-1", "2"]),
        ({"type": "integer", "multipleOf": 5}, ["0", "15", "-5"], ["3", "1.0"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {
            "type": "object", "properties": {"n": {"$ref": "#/$defs/a"}}, "required": ["n"]}]}}},
         ["null", '{"n": {"n": null}}'], ["{}", '{"n": 1}']),
    ],
)  # fmt: skip
def test_what_is_allowed(
    smol: HFTokenizer,
    smol_compiler: GrammarCompiler,
    schema: object,
    good: list[str],
    bad: list[str],
) -> None:
    for text in good:
        assert accepts(smol_compiler, spec(schema), text, smol), text
        check_text(spec(schema), text)
    for text in bad:
        assert not accepts(smol_compiler, spec(schema), text, smol), text


def test_special_ids_are_no_text(smol: HFTokenizer, smol_compiler: GrammarCompiler) -> None:
    """`<|im_start|>` spells twelve characters in the vocabulary and none in the answer."""
    state = smol_compiler.compile(spec(STRING)).start()
    assert state.advance(*smol.encode('"'))
    masks = state.masks(DraftTree.empty())
    assert not any(masks.allows(0, token) for token in smol.special_ids)
    assert masks.row(0).sum() > 20_000
    assert not state.advance(1)
    assert not state.advance(49_152)
    assert not state.advance(-1)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"not": STRING}, "'not' at #"),
        ({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}, "'if' at #/properties/a"),
        ({"type": "array", "contains": STRING}, "'contains'"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems'"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "'patternProperties'"),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "'b' at # is required"),
        ({"anyOf": [STRING], "type": "string"}, "'type' beside 'anyOf'"),
        ({"allOf": [STRING, {"maxLength": 1}]}, "more than one"),
        ({"oneOf": [STRING, {"maxLength": 1}]}, "'oneOf'"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "'oneOf'"),
        ({"$ref": "http://example.com/a"}, "must lie inside"),
        ({"$ref": "#/$defs/a"}, "which is not there"),
        ({"$ref": "#"}, "Circular"),
        ({"type": "text"}, "unknown type 'text'"),
        ({"enum": []}, "no value"),
        ({"enum": ["a"], "type": "integer"}, "no value"),
        ({"enum": [2**60]}, "2^53"),
        ({"minLength": 2, "items": {}}, "say the type"),
        ({"minLength": 3, "maxLength": 2}, "below"),
        ({"maxLength": 5000}, "add up to more than 256"),
        ({"pattern": "a", "maxLength": 2}, "beside a length"),
        ({"pattern": "(?=a)b"}, "assert"),
        ({"pattern": "(a)\\1"}, "groupref"),
        ({"pattern": "a^b"}, "not supported"),
        ({"pattern": "(a*)*"}, "may be empty"),
        ({"pattern": ".{0,9}.{0,9}"}, "follow each other"),
        ({"pattern": "([a-z]{1,9}x){1,9}"}, "repetition of repetitions"),
        ({"pattern": "[a-z]{900}"}, "256 characters"),
        ({"pattern": "("}, "not supported"),
        ({"type": "number", "multipleOf": 0.5}, "'multipleOf'"),
        ({"type": "number", "minimum": "1"}, "must be a number"),
        ({"minItems": -1}, "must be a count"),
        ({"minItems": 10**400}, "must be a count"),
        (False, "no value is allowed"),
        ([], "no value is allowed"),
        ({"type": "object", "properties": {"a": False}}, "#/properties/a"),
        ({"type": "object", "properties": []}, "wrong type"),
        ({"enum": ["\ud800"]}, "surrogate"),
    ],
)
def test_what_no_grammar_says_is_refused_with_its_place(
    toy_compiler: GrammarCompiler, schema: object, why: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        toy_compiler.compile(spec(schema))
    assert why in str(caught.value), caught.value
    assert caught.value.param == "response_format"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{", "null", '{"type": NaN}', '{"maximum": 1e999, "type": "number"}',
        '{"items":' * 40 + "{}" + "}" * 40, '{"items":' * 50_000 + "{}" + "}" * 50_000,
        json.dumps({"enum": list(range(3000))}), json.dumps({"description": "x" * 200_000}),
        json.dumps({"type": "object", "properties": {str(i): {} for i in range(5000)}}),
        json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
        '{"enum": [' + "9" * 5000 + "]}",
    ],
)  # fmt: skip
def test_schemas_from_strangers_are_bounded(toy_compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="response_format") as caught:
        toy_compiler.compile(JsonAnswer(text))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [STRING, {"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"const": 1}, {"enum": [2, 3]}]},
        {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
            name: {"type": "object", "properties": {"k": {"const": name}}, "required": ["k"]}
            for name in "ab"}},
    ],
)  # fmt: skip
def test_one_of_is_honoured_where_nothing_can_match_twice(
    toy_compiler: GrammarCompiler, schema: object
) -> None:
    toy_compiler.compile(spec(schema))


def test_annotations_and_unknown_keywords_restrict_nothing(toy_compiler: GrammarCompiler) -> None:
    schema = {"type": "boolean", "title": "T", "description": "D", "default": 1, "x-order": 3,
              "examples": [], "$schema": "s", "format": "made-up"}  # fmt: skip
    plain = checked_schema('{"type": "boolean"}', "p", "s")
    assert checked_schema(json.dumps(schema), "p", "s") == plain
    toy_compiler.compile(spec(schema))


def test_drafted_masks_equal_those_on_the_way(
    smol: HFTokenizer, smol_compiler: GrammarCompiler
) -> None:
    """All masks of a tree in one call, and the state as it was: vllm #53777."""
    schema = {"type": "object", "properties": {"a": STRING, "b": {"enum": ["x", "y"]}}}
    compiled = smol_compiler.compile(spec(schema))
    first = smol.encode('{"a": "some words", "b": "x"}')
    other = smol.encode('{"b": "y"}')
    tokens = [*first, *other]
    parents = [*range(len(first)), 0, *range(len(first) + 1, len(tokens))]
    state = compiled.start()
    before = state.masks(DraftTree.empty()).words.copy()
    masks = state.masks(DraftTree.from_parents(tokens, parents))
    assert np.array_equal(state.masks(DraftTree.empty()).words, before)
    for path, start in ((first, 0), (other, len(first))):
        walker = compiled.start()
        for number, token in enumerate(path):
            assert walker.advance(token)
            alone = walker.masks(DraftTree.empty()).words[0]
            assert np.array_equal(masks.words[start + number + 1], alone)
        walker.rollback(len(path))
        assert np.array_equal(walker.masks(DraftTree.empty()).words, before)
