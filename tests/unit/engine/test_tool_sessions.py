"""Ten turns of an agent, per arm: what is reused does not depend on who drafts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from whiflash.core.params import SamplingParams
from whiflash.core.protocols import Drafter
from whiflash.engine.core import EngineCore
from whiflash.target.load import LoadedTarget
from whiflash.testing.conversations import Conversation, Ids, converse
from whiflash.testing.drafters import OracleDrafter, RandomDrafter
from whiflash.testing.engines import small_core
from whiflash.testing.toy_drafters import NEURAL, ToyDrafters

MakeCore = Callable[..., EngineCore]
ARMS = ("none", "random", "oracle", *NEURAL)
TURNS = 10
HEAD = tuple(random.Random(11).randrange(3, 64) for _ in range(40))
PARAMS = SamplingParams(max_tokens=24, temperature=0.7, ignore_eos=True)


@pytest.fixture(scope="module")
def toys(toy: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> ToyDrafters:
    return ToyDrafters(tmp_path_factory.mktemp("drafters"), toy.target)


def whole(answer: Ids) -> Ids:
    return answer


def without_reasoning(answer: Ids) -> Ids:
    """The template writes only the end of an answer into the next prompt."""
    return answer[16:]


def session(history: Callable[[Ids], Ids]) -> Conversation:
    return Conversation(HEAD, 4, TURNS, PARAMS, history)


@pytest.fixture(scope="module")
def texts(toy: LoadedTarget, toys: ToyDrafters) -> dict[str, list[Ids]]:
    """Whole texts of all turns, for the oracle."""
    known = {}
    for history in (whole, without_reasoning):
        talk = session(history)
        converse(core := small_core(toy), [talk])
        core.close()
        known[history.__name__] = [
            (*t.request.prompt_ids, *d.token_ids)
            for t, d in zip(talk.tickets, talk.done, strict=True)
        ]
    return known


def drafters_of(arm: str, toys: ToyDrafters, texts: list[Ids]) -> dict[str, Drafter]:
    def continuation(context: list[int], count: int) -> Ids:
        for text in texts:
            if list(text[: len(context)]) == context:
                return text[len(context) : len(context) + count]
        return ()

    made: dict[str, Callable[[], Drafter]] = {
        "oracle": lambda: OracleDrafter(continuation, 64, num_decoys=1),
        "random": lambda: RandomDrafter(64),
    }
    if arm == "none":
        return {}
    return {arm: made[arm]() if arm in made else toys.make(arm)}


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("history", [whole, without_reasoning])
def test_ten_turns_reuse_all_that_stays_the_same(
    toy: LoadedTarget,
    toys: ToyDrafters,
    texts: dict[str, list[Ids]],
    make_core: MakeCore,
    arm: str,
    history: Callable[[Ids], Ids],
) -> None:
    """sglang #32459: with EAGLE reuse fell from 97 % to 40 to 53 %. Here no arm loses a token: a
    turn reuses all of the one before, up to where its template cut the answer."""
    known = texts[history.__name__]
    core = make_core(
        drafters_of(arm, toys, known), prefill_chunk=64, draft_window=512,
        memory_bytes=2 * toy.target.cache_bytes(512),
    )  # fmt: skip
    talk = session(history)
    converse(core, [talk])
    assert [(*t.request.prompt_ids, *d.token_ids)
            for t, d in zip(talk.tickets, talk.done, strict=True)] == known  # fmt: skip
    cached = [done.usage.cached_tokens for done in talk.done]
    prompts = [len(ticket.request.prompt_ids) for ticket in talk.tickets]
    if history is whole:
        assert cached == [0, *(count + 24 - 1 for count in prompts[:-1])]
        assert core.counters.reuse_ended == {"nothing": 1, "end_of_turn": TURNS - 1}
    else:
        assert cached[0] == 0
        assert all(c >= p for c, p in zip(cached[1:], prompts[:-1], strict=True))
        assert core.counters.reuse_ended == {"nothing": 1, "in_answer": TURNS - 1}
    assert len(core.admission.prefixes) == 1, "stale copies of one conversation pile up"
    if arm in NEURAL:
        assert core.counters.inherited_drafts == TURNS - 1
        assert core.drafting.catch_ups.num_window_starts == 0


def test_two_agents_with_one_head_do_not_take_from_each_other(
    toy: LoadedTarget, make_core: MakeCore
) -> None:
    """Each turn of each reuses all of the turn before, however the two are interleaved."""
    core = make_core(prefill_chunk=64)
    talks = [Conversation((*HEAD, 7 + n, 8, 9 + n), n, 6, PARAMS) for n in range(2)]
    converse(core, talks)
    for talk in talks:
        for before, ticket, done in zip(
            talk.tickets, talk.tickets[1:], talk.done[1:], strict=False
        ):
            held = len(before.request.prompt_ids) + PARAMS.max_tokens - 1
            assert done.usage.cached_tokens == held, ticket.request


def test_memory_that_is_too_small_says_so(toy: LoadedTarget, make_core: MakeCore) -> None:
    """The counter tells a small memory from text that was never seen."""
    core = make_core(prefill_chunk=64, memory_bytes=toy.target.cache_bytes(512), max_batch=1)
    talks = [
        Conversation(tuple(random.Random(n).choices(range(3, 64), k=60)), n, 3, PARAMS)
        for n in range(8)
    ]
    converse(core, talks)
    assert core.counters.reuse_ended["evicted"] > 0
    assert core.counters.reuse_ended["nothing"] == len(talks)
