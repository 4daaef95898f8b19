"""Patterns as rules against Python's own matching; the library's conversion of them is unsound."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest
import xgrammar

from whiflash.chat.constraints.keywords import SchemaError
from whiflash.chat.constraints.patterns import length_rule, pattern_rule

BYTES = [bytes([value]) for value in range(256)] + [b""]
VOCABULARY = xgrammar.TokenizerInfo(BYTES, xgrammar.VocabType.RAW, stop_token_ids=[256])
COMPILER = xgrammar.GrammarCompiler(VOCABULARY, max_threads=1, cache_enabled=False)
TEXTS = ["".join(t) for n in range(5) for t in itertools.product('ab"\n', repeat=n)]
ATOMS = ["a", "b", "[ab]", ".", "[^a]", '"', "\\n", '[^"]', "\\s", "\\S", "\\w", "[^\\w]", "\\D"]
QUANTIFIERS = ["?", "*", "+", "{0,1}", "{1,2}", "{2,}", "{0}", "*?"]


def matches(compiled: xgrammar.CompiledGrammar, text: str) -> bool:
    matcher = xgrammar.GrammarMatcher(compiled)
    return matcher.accept_string(text) and matcher.is_completed()


def compiled(rule: str) -> xgrammar.CompiledGrammar:
    return COMPILER.compile_grammar(f'root ::= "\\"" ({rule}) "\\""')


def random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(ATOMS)
    inner = random_pattern(rng, depth - 1)
    if kind < 0.55:
        return inner + random_pattern(rng, depth - 1)
    if kind < 0.75:
        return f"{rng.choice(['(', '(?:'])}{inner}|{random_pattern(rng, depth - 1)})"
    return f"({inner}){rng.choice(QUANTIFIERS)}"


def test_random_patterns_match_what_python_matches() -> None:
    num_tried = 0
    for seed in range(250):
        pattern = random_pattern(random.Random(seed), 4)
        try:
            rule = pattern_rule(pattern, "#")
        except SchemaError:
            continue
        num_tried += 1
        grammar, expression = compiled(rule.text), re.compile(pattern, re.ASCII)
        for text in TEXTS:
            expected = expression.fullmatch(text) is not None
            assert matches(grammar, json.dumps(text)) == expected, (pattern, text)
    assert num_tried > 180


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9_-]{1,64}$", "^\\d{4}-\\d{2}-\\d{2}$", "^[a-z]+(-[a-z]+)*$", "^\\+?\\d{10}$",
        "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$", "^(low|high)$", "^low|high$", "^\\d+(\\.\\d+)?$",
        "^#[0-9A-F]{6}$", "^(?P<a>x)y$", ".*cat.*", "",
    ],
)  # fmt: skip
def test_patterns_that_people_write_are_cheap_enough(pattern: str) -> None:
    assert pattern_rule(pattern, "#").num_states <= 256


@pytest.mark.parametrize(
    "pattern", ["$a", "\\bfoo", "^(^a)$", "\\p{L}", "(?i)a", "[\\ud800-\\udfff]", "a{1,9999}", 5]
)
def test_patterns_that_mean_something_else_are_refused(pattern: object) -> None:
    with pytest.raises(SchemaError, match="#/here"):
        pattern_rule(pattern, "#/here")


@pytest.mark.parametrize("bounds", [(0, 3), (1, 3), (2, 2), (0, 0), (2, None), (3, 4)])
def test_lengths_count_characters_not_their_spelling(bounds: tuple[int, int | None]) -> None:
    low, high = bounds
    grammar = compiled(length_rule(low, high).text)
    spelled = ["a", "\\n", "\\\\", '\\"', "é", "\t", '"', "\\u00e9"]
    sound = re.compile(r'"(?:[^\x00-\x1f"\\]|\\["\\/bfnrt])*"')
    for count in range(5):
        for parts in itertools.product(spelled, repeat=count):
            text = f'"{"".join(parts)}"'
            is_sound = sound.fullmatch(text) is not None
            expected = is_sound and low <= len(json.loads(text)) <= (
                high if high is not None else 9
            )
            assert matches(grammar, text) == expected, text
