from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.errors import RateLimitedError
from whiflash.serving.allowance import Allowances, TokenBucket
from whiflash.serving.caller import LOCAL_CALLER
from whiflash.serving.keys import KeyLimits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_in_while_anything_is_left_and_says_when_again() -> None:
    clock = Clock()
    bucket = TokenBucket(60, clock)
    bucket.pay(50)
    assert bucket.wait_s() == 0
    bucket.pay(40)  # an answer that got longer than the rest
    assert bucket.wait_s() == pytest.approx(31)
    clock.now += 31
    assert bucket.wait_s() == 0


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 200)), max_size=60))
def test_nobody_gets_more_than_his_rate_and_one_answer(spans: list[tuple[float, int]]) -> None:
    clock, rate = Clock(), 60
    bucket = TokenBucket(rate, clock)
    used, largest = 0, 0
    for seconds, tokens in spans:
        clock.now += seconds
        if bucket.wait_s() == 0:
            bucket.pay(tokens)
            used, largest = used + tokens, max(largest, tokens)
    assert used <= rate + clock.now * rate / 60 + largest + 1e-6


def test_calls_in_flight_are_counted_per_key_and_given_back() -> None:
    allowances, limits = Allowances(), KeyLimits(max_in_flight=1)
    with allowances.call(LOCAL_CALLER, limits):
        assert allowances.in_flight(LOCAL_CALLER) == 1
        with pytest.raises(RateLimitedError), allowances.call(LOCAL_CALLER, limits):
            raise AssertionError("a second call was let in")
    with pytest.raises(ZeroDivisionError), allowances.call(LOCAL_CALLER, limits):
        _ = 1 / 0
    assert allowances.in_flight(LOCAL_CALLER) == 0
    allowances.check_integrity()


def test_used_up_tokens_are_refused_with_the_time_to_wait() -> None:
    clock = Clock()
    allowances, limits = Allowances(clock), KeyLimits(tokens_per_minute=100)
    with allowances.call(LOCAL_CALLER, limits):
        pass
    allowances.pay(LOCAL_CALLER, 200)
    with pytest.raises(RateLimitedError) as caught, allowances.call(LOCAL_CALLER, limits):
        pass
    assert caught.value.retry_after_s == pytest.approx(60.6)
    clock.now += 61
    with allowances.call(LOCAL_CALLER, limits):
        pass
