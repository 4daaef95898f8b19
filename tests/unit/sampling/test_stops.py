"""Finish checks, per token in order of position, in blocks of any size."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.params import SamplingParams
from whiflash.core.results import FinishReason
from whiflash.sampling.stops import Emission, StopChecker

EOS = 0
LETTERS = "_abcdefgh"  # id 0 is EOS and special
K = 6


class Letters:
    """Ids are letters; id 9 spells two of them."""

    fingerprint = "letters"

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(char) for char in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join("ab" if i == 9 else LETTERS[i] for i in token_ids if i != EOS)

    def id_to_token(self, token_id: int) -> str | None:
        return "ab" if token_id == 9 else LETTERS[token_id]


def _checker(max_room: int = 1000, **options: Any) -> StopChecker:
    return StopChecker(SamplingParams(**options), Letters(), (EOS,), max_room)


def _run(checker: StopChecker, blocks: list[list[int]]) -> tuple[list[int], str, Emission]:
    ids: list[int] = []
    text = ""
    for block in blocks:
        emission = checker.push(block)
        ids += block[: emission.num_kept]
        text += emission.text
        if emission.finish_reason is not None:
            return ids, text, emission
    return ids, text, emission


@pytest.mark.parametrize("cap_kind", ["max_tokens", "context"])
@pytest.mark.parametrize("stop_kind", ["eos", "stop_token", "stop_string"])
@pytest.mark.parametrize("cap_at", range(1, K + 1))
@pytest.mark.parametrize("stop_at", range(1, K + 1))
def test_the_earlier_of_stop_and_cap_wins(
    stop_at: int, cap_at: int, stop_kind: str, cap_kind: str
) -> None:
    """sglang #31599, PR #33758 and three more: one accepted block, stop at i, cap at j."""
    stop_id = {"eos": EOS, "stop_token": 5, "stop_string": 8}[stop_kind]
    block = [1] * K
    block[stop_at - 1] = stop_id
    options: dict[str, Any] = {"max_tokens": cap_at if cap_kind == "max_tokens" else 99}
    options |= {"stop_token": {"stop_token_ids": (5,)}, "stop_string": {"stop": ("h",)}}.get(
        stop_kind, {}
    )
    checker = _checker(max_room=cap_at if cap_kind == "context" else 1000, **options)
    ids, text, end = _run(checker, [block])
    is_stop = stop_at <= cap_at
    assert end.finish_reason is (FinishReason.STOP if is_stop else FinishReason.LENGTH)
    assert ids == block[: min(stop_at, cap_at)]
    assert text == "a" * (stop_at - 1 if is_stop else cap_at)
    assert end.matched == ((stop_id if stop_kind != "stop_string" else "h") if is_stop else None)
    assert checker.num_tokens == len(ids)


@pytest.mark.parametrize("cut", range(1, 6))
def test_stop_string_in_the_middle_at_the_end_and_across_blocks(cut: int) -> None:
    """transformers #48039."""
    ids = Letters().encode("abcdefg")
    kept, text, end = _run(_checker(stop=("cde",)), [ids[:cut], ids[cut:]])
    assert (kept, text, end.matched) == (ids[:5], "ab", "cde")


def test_tokens_behind_eos_are_discarded() -> None:
    """koboldcpp #1276."""
    kept, text, end = _run(_checker(), [[1, 2, EOS, 3, 4]])
    assert (kept, text, end.matched) == ([1, 2, EOS], "ab", EOS)


def test_a_stop_string_inside_one_token_cuts_its_text() -> None:
    kept, text, end = _run(_checker(stop=("b",)), [[3, 9, 4]])
    assert (kept, text, end.matched) == ([3, 9], "ca", "b")


def test_withheld_text_is_delivered_when_the_turn_ends_otherwise() -> None:
    for block, reason in (([1, 2, EOS], FinishReason.STOP), ([1, 2, 3], FinishReason.LENGTH)):
        checker = _checker(stop=("bcd", "bd"), max_tokens=3)
        first = checker.push(block[:2])
        assert first == Emission(2, "a")
        last = checker.push(block[2:])
        assert last.text == ("b" if block[2] == EOS else "bc")
        assert last.finish_reason is reason


def test_flush_of_a_cancelled_turn_gives_the_rest_once() -> None:
    checker = _checker(stop=("bcd",))
    assert checker.push([1, 2, 3]).text == "a"
    assert checker.flush() == "bc"
    assert checker.flush() == ""
    with pytest.raises(ValueError, match="ended"):
        checker.push([1])


@pytest.mark.parametrize("min_tokens", range(6))
def test_stop_strings_count_from_min_tokens_on(min_tokens: int) -> None:
    """ "ab" is completed by tokens 2 and 4; the first that is not too early ends the turn."""
    ids, text, end = _run(_checker(stop=("ab",), min_tokens=min_tokens), [[1, 2, 1, 2, 3]])
    ended_at = 2 if min_tokens <= 2 else 4 if min_tokens <= 4 else 5
    assert len(ids) == ended_at
    assert text == {2: "", 4: "ab", 5: "ababc"}[ended_at]
    assert (end.finish_reason is FinishReason.STOP) == (ended_at < 5)


def test_ignored_eos_is_an_ordinary_token_without_text() -> None:
    kept, text, end = _run(_checker(ignore_eos=True, max_tokens=4), [[1, EOS, 2, EOS, 3]])
    assert (kept, text) == ([1, EOS, 2, EOS], "ab")
    assert end.finish_reason is FinishReason.LENGTH


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.lists(st.integers(1, 5), min_size=20, max_size=20),
    st.lists(st.sampled_from(["ab", "b", "abc", "ca", "hh"]), max_size=2, unique=True),
    st.integers(0, 4),
    st.booleans(),
)
def test_result_does_not_depend_on_the_blocks(
    ids: list[int], sizes: list[int], stops: list[str], min_tokens: int, ignore_eos: bool
) -> None:
    """Drafting changes how many tokens come at once; ids, text and reason must not change."""
    options = {
        "stop": tuple(stops), "min_tokens": min_tokens, "max_tokens": 15, "ignore_eos": ignore_eos
    }  # fmt: skip
    blocks, rest = [], ids
    for size in sizes:
        blocks.append(rest[:size])
        rest = rest[size:]
    one_by_one = _run(_checker(**options), [[token] for token in ids])
    in_blocks = _run(_checker(**options), [block for block in blocks if block])
    assert in_blocks[:2] == one_by_one[:2]
    assert in_blocks[2].finish_reason == one_by_one[2].finish_reason
    assert in_blocks[2].matched == one_by_one[2].matched


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=12),
    st.integers(1, 11),
    st.lists(st.sampled_from(["ab", "abc", "ca"]), max_size=2, unique=True),
)
def test_a_resumed_turn_goes_on_where_the_first_was_lost(
    ids: list[int], lost_after: int, stops: list[str]
) -> None:
    lost_after = min(lost_after, len(ids) - 1)
    options = {"stop": tuple(stops), "max_tokens": len(ids)}
    whole_ids, whole_text, whole_end = _run(_checker(**options), [[token] for token in ids])
    if len(whole_ids) <= lost_after:
        return
    lost = _checker(**options)
    shown = lost.push(ids[:lost_after]).text
    resumed = _checker(**options)
    resumed.resume(ids[:lost_after])
    more_ids, more_text, end = _run(resumed, [ids[lost_after:]])
    assert shown + more_text == whole_text
    assert ids[:lost_after] + more_ids == whole_ids
    assert end.finish_reason == whole_end.finish_reason
