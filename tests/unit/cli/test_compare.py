"""The comparison with the no-draft twin: same ids or not, ratios by pairs."""

from __future__ import annotations

from typing import Any

import pytest

from whiflash.cli.compare import Comparison, compare
from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion, FinishReason, Generation
from whiflash.core.usage import Usage


def completion(token_ids: tuple[int, ...], decode_ms: float) -> Completion:
    usage = Usage(completion_tokens=len(token_ids), rounds=2, decode_ms=decode_ms)
    return Completion(0, "text", token_ids, FinishReason.LENGTH, usage, seed=1)


def test_ratio_is_the_median_over_pairs() -> None:
    drafted = tuple(completion((1, 2), ms) for ms in (10.0, 20.0, 10.0))
    plain = tuple(completion((1, 2), ms) for ms in (20.0, 20.0, 40.0))
    comparison = Comparison(drafted, plain)
    assert comparison.ratio == 2.0
    assert comparison.record()["same_text"] is True
    assert list(comparison.lines())[-1] == "same text: yes"


@pytest.mark.parametrize("odd_side", ["drafted", "plain"])
def test_one_other_id_in_any_run_is_not_the_same_text(odd_side: str) -> None:
    same, odd = completion((1, 2), 1.0), completion((1, 3), 1.0)
    runs = {"drafted": (same, same), "plain": (same, same)}
    runs[odd_side] = (same, odd)
    comparison = Comparison(runs["drafted"], runs["plain"])
    assert not comparison.is_same_text
    assert list(comparison.lines())[-1] == "same text: no"


class RecordingEngine:
    """Answers at once and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def generate(self, prompt: list[int], params: SamplingParams, **fields: Any) -> Generation:
        self.asked.append(fields)
        return Generation(tuple(prompt), (completion((5,), 1.0),))


def test_runs_alternate_and_know_nothing_of_each_other() -> None:
    engine = RecordingEngine()
    compare(engine, [1, 2], SamplingParams(seed=3), num_pairs=2)  # type: ignore[arg-type]
    assert [asked["drafter"] for asked in engine.asked] == [None, "none", "none", None]
    assert len({asked["namespace"] for asked in engine.asked}) == 4
    assert not any(asked["store"] for asked in engine.asked)
