"""The parser fed as rounds feed it: runs of 1 to 16 tokens of a real vocabulary, decoded piece by
piece. vllm #41967, TensorRT-LLM #16377: calls were lost where a run held marker and text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from whiflash.chat.events import ParseEvent
from whiflash.chat.hermes import HermesParser
from whiflash.chat.messages import ParsedMessage
from whiflash.core.results import FinishReason
from whiflash.models.sources import resolve
from whiflash.models.tokenizer import HFTokenizer
from whiflash.sampling.detokenizer import Detokenizer

DATA = Path(__file__).parents[2] / "data" / "tool_formats" / "hermes_cases.jsonl"
CASES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()][1:]


@pytest.fixture(scope="module")
def smol() -> HFTokenizer:
    return HFTokenizer.load(resolve("smollm2-135m"))


def read(case: dict[str, Any], pieces: Iterable[str]) -> tuple[ParsedMessage, dict[Any, str]]:
    tail = case["prompt_tail"].rstrip()
    parser = HermesParser(
        has_reasoning=case["format"] == "qwen3" and not tail.endswith("</think>"),
        in_reasoning=tail.endswith("<think>"),
    )
    events: list[ParseEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish(FinishReason.STOP if case["stop"] else FinishReason.LENGTH)
    joined: dict[Any, str] = {}
    for event in events:
        key = (event.kind, event.call)
        joined[key] = joined.get(key, "") + event.text
    return parser.message(), joined


def runs(tokenizer: HFTokenizer, ids: list[int], width: int, shift: int) -> list[str]:
    """What rounds of `width` tokens deliver, the first one `shift` tokens long."""
    detokenizer = Detokenizer(tokenizer)
    starts = [0, *range(shift or width, len(ids), width), len(ids)]
    pieces = [
        "".join(detokenizer.push(token) for token in ids[start:end])
        for start, end in pairwise(starts)
    ]
    return [*pieces, detokenizer.flush()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_token_runs_give_one_result(smol: HFTokenizer, case: dict[str, Any]) -> None:
    ids = smol.encode(case["text"])
    assert smol.decode(ids) == case["text"]
    whole = read(case, [case["text"]])
    for width in range(1, 17):
        for shift in range(min(width, 4)):
            pieces = runs(smol, ids, width, shift)
            assert "".join(pieces) == case["text"]
            assert read(case, pieces) == whole, (width, shift)
