from __future__ import annotations

from collections.abc import Callable

from whiflash.core.params import SamplingParams
from whiflash.serving.call import GenerationCall
from whiflash.serving.caller import CallContext
from whiflash.serving.idempotency import KEEP_S, MAX_KEYS_PER_PROJECT, IdempotencyBook

MakeCall = Callable[..., GenerationCall]
MakeContext = Callable[..., CallContext]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_forgotten_in_time_and_beyond_the_bound(
    call: MakeCall, context: MakeContext
) -> None:
    clock, caller = Clock(), context().caller
    book = IdempotencyBook(clock)
    for number in range(MAX_KEYS_PER_PROJECT + 1):
        book.entry(caller, call(idempotency_key=f"k{number}"), number)
    book.check_integrity()
    assert book.entry(caller, call(idempotency_key="k5"), 99).seed == 5
    assert book.entry(caller, call(idempotency_key="k0"), 99).seed == 99
    clock.now += KEEP_S + 1
    assert book.entry(caller, call(idempotency_key="k5"), 77).seed == 77


def test_the_flood_of_one_tenant_forgets_no_key_of_another(
    call: MakeCall, context: MakeContext
) -> None:
    book = IdempotencyBook()
    book.entry(context("quiet").caller, call(idempotency_key="k"), 1)
    for number in range(1000):
        book.entry(context("loud").caller, call(idempotency_key=f"k{number}"), 2)
    assert book.entry(context("quiet").caller, call(idempotency_key="k"), 3).seed == 1


def test_equal_calls_are_equal_and_any_other_field_is_another_call(
    call: MakeCall, context: MakeContext
) -> None:
    caller = context().caller
    first = IdempotencyBook().entry(caller, call(idempotency_key="k"), 1)
    again = IdempotencyBook().entry(caller, call(idempotency_key="k"), 1)
    assert first.digest == again.digest
    for other in (
        call("x", idempotency_key="k"),
        call(idempotency_key="k", max_tokens=3),
        call(idempotency_key="k", params=SamplingParams(top_k=1)),
    ):
        assert IdempotencyBook().entry(caller, other, 1).digest != first.digest
