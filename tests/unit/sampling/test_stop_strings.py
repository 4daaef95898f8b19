"""Stop strings: the same cut however the text arrives, and nothing shown that is cut later."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.sampling.stop_strings import StopStrings

_STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3)


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Grow the text by one character until it ends with a stop string."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            longest = max(done, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=500)
@given(st.text("abc", max_size=30), _STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_cut_does_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    stream, shown, matched = StopStrings(stops), "", None
    for start, end in pairwise(places):
        released = stream.feed(text[start:end])
        shown += released.text
        assert naive(text, stops)[0].startswith(shown), "text was shown that is cut later"
        if released.matched is not None:
            matched = released.matched
            break
    else:
        shown += stream.flush()
    assert (shown, matched) == naive(text, stops)


@given(st.text("ab", max_size=20), _STOPS)
def test_as_little_as_possible_is_withheld(text: str, stops: list[str]) -> None:
    stream = StopStrings(stops)
    released = stream.feed(text)
    if released.matched is None:
        held = text[len(released.text) :]
        candidates = [s[:n] for s in stops for n in range(1, len(s)) if text.endswith(s[:n])]
        assert held == max(candidates, key=len, default="")


def test_not_armed_matches_do_not_count_but_text_may_begin_one() -> None:
    stream = StopStrings(["END"])
    assert stream.feed("xENDyEN", is_armed=False).text == "xENDy"
    released = stream.feed("D z")
    assert released == type(released)("", "END")


@pytest.mark.parametrize("length", [1, 100])
def test_first_completed_wins_then_the_longest(length: int) -> None:
    pieces = "xaby" if length == 100 else list("xaby")
    stream = StopStrings(["aby", "b", "ab"])
    results = [stream.feed(piece) for piece in ([pieces] if length == 100 else pieces)]
    ended = next(result for result in results if result.matched)
    assert ended.matched == "ab"
    assert "".join(result.text for result in results[: results.index(ended) + 1]) == "x"


def test_without_stop_strings_everything_passes() -> None:
    stream = StopStrings([])
    assert stream.feed("any text").text == "any text"
    assert stream.flush() == ""
