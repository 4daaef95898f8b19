"""A request that loses its verifier any number of times is one uninterrupted request."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.errors import DeadlineExceededError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion, Delta, FinishReason
from whiflash.core.usage import Usage
from whiflash.rpc.verifier_events import ChoiceEnd
from whiflash.serving.remote.record import DivergedError, InFlightRecord
from whiflash.testing.backends import CharacterTokenizer, ScriptedBackend

ANSWERS = ("the whole answer of choice 0", "another one", "and a third, longer than the others")
NUM_FORCED = 4


def rounds(request: GenerationRequest, draw: random.Random) -> Iterator[Delta | ChoiceEnd]:
    """What a verifier reports, in rounds of random length, its choices in turn. Text is one
    character behind the ids but for the end, as withheld text is."""
    open_choices = {index: len(request.forced_ids) for index in range(request.params.n)}
    while open_choices:
        index = draw.choice(sorted(open_choices))
        answer, start = ANSWERS[index], open_choices[index]
        stop = min(len(answer), start + draw.randint(1, 5))
        is_last = stop == len(answer)
        held = start < len(answer)  # nothing is withheld of an answer that is complete
        text = answer[max(start - held, 0) : stop if is_last else stop - 1]
        reason = FinishReason.STOP if is_last else None
        tokens = tuple(ord(character) for character in answer[start:stop])
        yield Delta(index, tokens, text, "retrieval", len(tokens) - 1, (), reason)
        open_choices[index] = stop
        if is_last:
            usage = Usage(len(request.prompt_ids), completion_tokens=stop)
            yield ChoiceEnd(index, FinishReason.STOP, usage, len(answer))
            del open_choices[index]


def read(events: list[Delta | Completion], index: int) -> tuple[str, str]:
    mine = [event for event in events if event.index == index]
    pieces = [event for event in mine if isinstance(event, Delta)]
    ids = "".join(chr(token) for piece in pieces for token in piece.token_ids)
    return ids, "".join(piece.text for piece in pieces)


@settings(deadline=None)
@given(
    n=st.integers(1, 3),
    losses=st.lists(st.integers(0, 12), max_size=6),
    is_resumed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_losses_anywhere_leave_no_seam(
    n: int, losses: list[int], is_resumed: bool, seed: int
) -> None:
    draw = random.Random(seed)
    forced = tuple(map(ord, ANSWERS[0][:NUM_FORCED])) if is_resumed and n == 1 else ()
    request = GenerationRequest((1, 2), SamplingParams(n=n), forced_ids=forced)
    record, got = InFlightRecord(request, 7), []
    for limit in [*losses, 1000]:
        for number, event in enumerate(rounds(record.next_request(), draw)):
            if number == limit:
                break
            taken = record.take(event)
            got += [taken] if taken is not None else []
            record.check_integrity()
        if record.is_done:
            break
        end = record.lost_end(ScriptedBackend().model, CharacterTokenizer())
        assert end is None, "these answers do not end by a stop token"
    ends = {event.index: event for event in got if isinstance(event, Completion)}
    assert ends.keys() == set(range(n))
    for index in range(n):
        answer, start = ANSWERS[index], len(forced)
        assert read(got, index) == (answer[start:], answer[max(start - 1, 0) :])
        assert "".join(chr(token) for token in ends[index].token_ids) == answer
        assert ends[index].text == answer[max(start - 1, 0) :]
        assert ends[index].usage.completion_tokens == len(answer) - start
        assert ends[index].seed == 7


def test_an_end_that_was_lost_is_found_again() -> None:
    """The last token was delivered, the verifier died before it could say that it was the last."""
    params = SamplingParams(max_tokens=5)
    record = InFlightRecord(GenerationRequest((1,), params), 1)
    record.take(Delta(0, tuple(map(ord, "abcde")), "abcde", "none", 0))
    end = record.lost_end(ScriptedBackend().model, CharacterTokenizer())
    assert end is not None
    assert (end.text, end.finish_reason) == ("abcde", FinishReason.LENGTH)
    assert record.is_done


def test_a_stop_string_that_was_lost_is_found_again() -> None:
    record = InFlightRecord(GenerationRequest((1,), SamplingParams(stop=("de",))), 1)
    record.take(Delta(0, tuple(map(ord, "abcde")), "abc", "none", 0))
    end = record.lost_end(ScriptedBackend().model, CharacterTokenizer())
    assert end is not None
    assert (end.text, end.matched_stop) == ("abc", "de")


def test_another_text_is_never_handed_on() -> None:
    record = InFlightRecord(GenerationRequest((1,), SamplingParams(n=2)), 1)
    record.take(Delta(0, (1, 2, 3), "abc", "none", 0))
    record.next_request()
    with pytest.raises(DivergedError, match="another text"):
        record.take(Delta(0, (1, 9), "ax", "none", 0))


def test_an_end_must_fit_what_was_delivered() -> None:
    record = InFlightRecord(GenerationRequest((1,)), 1)
    record.take(Delta(0, (1, 2, 3), "abc", "none", 0))
    with pytest.raises(DivergedError, match="ended a choice of 2 tokens"):
        record.take(ChoiceEnd(0, FinishReason.STOP, Usage(), 2))


def test_lost_rounds_are_counted_by_what_they_showed() -> None:
    record = InFlightRecord(GenerationRequest((1,)), 1)
    record.take(Delta(0, (1, 2, 3), "abc", "retrieval", 2))
    record.next_request()
    record.take(Delta(0, (4,), "d", "none", 0))
    usage = Usage(completion_tokens=1, rounds=1)
    end = record.take(ChoiceEnd(0, FinishReason.STOP, usage, 4))
    assert isinstance(end, Completion)
    assert (end.usage.completion_tokens, end.usage.rounds) == (4, 2)
    arm = end.usage.arms["retrieval"]
    assert (arm.rounds, arm.emitted, arm.accepted) == (1, 3, 2)


def test_time_runs_on_while_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    record = InFlightRecord(GenerationRequest((1,), deadline_s=5.0), 1)
    now[0] += 3
    assert record.next_request().deadline_s == 2.0
    now[0] += 2
    with pytest.raises(DeadlineExceededError):
        record.next_request()
