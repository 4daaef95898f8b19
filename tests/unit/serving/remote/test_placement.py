"""Requests go where their prefix is, unless that verifier is busy beside the others."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.params import GenerationRequest
from whiflash.serving.remote.placement import (
    BLOCK_TOKENS,
    LOAD_BOUND,
    PrefixMemory,
    place,
    rendezvous,
    request_key,
)

names = st.lists(
    st.text("abcdef:0123", min_size=1, max_size=6), min_size=1, max_size=6, unique=True
)


@settings(deadline=None)
@given(names, st.binary(min_size=1, max_size=16))
def test_when_one_goes_only_its_keys_move(addresses: list[str], key: bytes) -> None:
    order = rendezvous(key, addresses)
    assert sorted(order) == sorted(addresses)
    for gone in addresses:
        rest = [address for address in addresses if address != gone]
        assert rendezvous(key, rest) == [address for address in order if address != gone]


def test_keys_spread_over_all() -> None:
    addresses = [f"127.0.0.1:{port}" for port in range(4)]
    first = Counter(rendezvous(str(key).encode(), addresses)[0] for key in range(2000))
    assert min(first.values()) > 400


@settings(deadline=None)
@given(names, st.data())
def test_nobody_gets_more_beside_an_idle_one(addresses: list[str], data: st.DataObject) -> None:
    load = {address: data.draw(st.floats(0, 3)) for address in addresses}
    chosen = place(addresses, load)
    average = sum(load.values()) / len(load)
    if load[chosen] != min(load.values()):
        assert load[chosen] < 1.0
        assert load[chosen] <= max(LOAD_BOUND * average, 0.125)


def test_a_session_stays_where_it_is_while_that_one_is_not_busy() -> None:
    order = ["a", "b"]
    assert place(order, {"a": 0.1, "b": 0.0}) == "a"
    assert place(order, {"a": 0.5, "b": 0.0}) == "b"
    assert place(order, {"a": 0.5, "b": 0.5}) == "a"
    assert place(order, {"a": 2.0, "b": 1.5}) == "b"


def test_a_session_is_its_run_else_the_beginning_of_its_prompt() -> None:
    turns = [tuple(range(length)) for length in (40, 80)]
    assert request_key(GenerationRequest(turns[0])) == request_key(GenerationRequest(turns[1]))
    run = [GenerationRequest((i,), run_id="r") for i in range(2)]
    assert request_key(run[0]) == request_key(run[1])
    assert request_key(GenerationRequest((1,), run_id="r")) != request_key(
        GenerationRequest((1,), namespace="other", run_id="r")
    )


def test_the_longest_known_prefix_counts() -> None:
    memory = PrefixMemory()
    system, mine, theirs = tuple(range(BLOCK_TOKENS)), (1,) * BLOCK_TOKENS, (2,) * BLOCK_TOKENS
    memory.note(GenerationRequest(system + mine), "a")
    memory.note(GenerationRequest(system + theirs), "b")
    assert memory.find(GenerationRequest(system + mine + (5,) * 7)) == "a"
    assert memory.find(GenerationRequest(system + theirs + (5,) * 70)) == "b"
    assert memory.find(GenerationRequest(system)) == "b"
    assert memory.find(GenerationRequest((9, *system))) is None
    assert memory.find(GenerationRequest(system + mine, namespace="other")) is None
    assert memory.find(GenerationRequest((1,))) is None


def test_memory_is_bounded() -> None:
    memory = PrefixMemory(max_blocks=4)
    for number in range(10):
        memory.note(GenerationRequest((number,) * BLOCK_TOKENS * 3), "a")
    assert len(memory) == 4
