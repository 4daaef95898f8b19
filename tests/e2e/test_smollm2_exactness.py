"""The real model: routed text equals plain text, alone and in a batch, greedy and sampled.

Token for token where the plan says `bitwise`; elsewhere under gate 2 (design.md 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from whiflash import ChatFormat, Engine, SamplingParams
from whiflash.core.results import Completion
from whiflash.testing.gate import require_explained

MAX_TOKENS = 40
GREEDY = SamplingParams(max_tokens=MAX_TOKENS)
SAMPLED = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.8, seed=20)
_RECORD = '{"name": "Ada Holm", "age": 36, "city": "Bergen", "langs": ["no", "en"]}'
_CODE = "def total(items):\n    result = 0\n    for item in items:\n        result += item.price\n"
USER_TURNS = (
    f"Repeat this JSON exactly: {_RECORD}",
    f"Repeat this JSON with age changed to 37: {_RECORD}",
    f"Repeat this JSON with city changed to Oslo: {_RECORD}",
    f"Repeat this code exactly:\n{_CODE}",
    f"Repeat this code, but rename total to price_sum:\n{_CODE}",
    "Write the numbers from one to twelve, one per line.",
    "List the seven days of the week.",
    "List the twelve months of the year.",
    "Write five lines of JSON like this one, for ids 1 to 5: " + '{"id": 1, "state": "open"}',
    "What is the capital of France?",
    "Say hello in three languages.",
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "Write a short story about a fox.",
    "Explain what a loop is in programming.",
    "Give me a recipe for pancakes.",
    "Translate to French: good morning, my friend.",
    "What is 12 plus 30?",
    "Repeat this sentence twice: the quick brown fox jumps over the lazy dog.",
    "Write a letter to a friend about a holiday.",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(max_batch=8) as opened:
        yield opened


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[str]:
    chat = ChatFormat.for_model(engine.model_folder, engine.model_name)
    return [chat.render([{"role": "user", "content": text}]) for text in USER_TURNS]


@pytest.fixture(scope="module", params=[GREEDY, SAMPLED], ids=["greedy", "sampled"])
def params(request: pytest.FixtureRequest) -> SamplingParams:
    return dataclasses.replace(request.param)


@pytest.fixture(scope="module")
def plain(engine: Engine, prompts: list[str], params: SamplingParams) -> list[Completion]:
    """Each prompt alone, without drafts and without a prefix of an earlier one."""
    return [
        engine.generate(prompt, params, drafter="none", namespace=f"plain-{i}").choices[0]
        for i, prompt in enumerate(prompts)
    ]


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_batched", [False, True], ids=["alone", "batch of 8"])
def test_routed_text_is_the_plain_text(
    engine: Engine,
    prompts: list[str],
    params: SamplingParams,
    plain: list[Completion],
    is_batched: bool,
) -> None:
    namespace = f"routed-{params.temperature}-{is_batched}"
    if is_batched:
        answers = engine.generate_batch(prompts, params, namespace=namespace)
    else:
        answers = [engine.generate(prompt, params, namespace=namespace) for prompt in prompts]
    drafted = 0
    for answer, twin in zip(answers, plain, strict=True):
        done = answer.choices[0]
        drafted += sum(arm.drafted for arm in done.usage.arms.values())
        require_explained(engine, answer.prompt_ids, params, done, twin)
    assert drafted > 0
    assert engine.core.counters.rejected_at.total() > 0
