"""Whatever the engine did to a sequence, its drafters draft as if they had never been away."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import DraftRow
from whiflash.drafters.neural import NeuralDrafter
from whiflash.engine.core import EngineCore
from whiflash.target.load import LoadedTarget
from whiflash.testing.conversations import Conversation, Ids, converse
from whiflash.testing.engines import run
from whiflash.testing.fragile import make_fragile
from whiflash.testing.plain import plain_answer
from whiflash.testing.policies import RandomPolicy, Rhythm
from whiflash.testing.toy import SYMBOLS
from whiflash.testing.toy_drafters import NEURAL, ToyDrafters
from whiflash.testing.twins import Twin, has_same_nodes

MakeCore = Callable[..., EngineCore]
WINDOW = 48
ENDS = tuple(3 + SYMBOLS.index(symbol) for symbol in "*xu-")


@pytest.fixture(scope="module")
def toys(toy: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> ToyDrafters:
    return ToyDrafters(tmp_path_factory.mktemp("drafters"), toy.target)


def second_half(answer: Ids) -> Ids:
    return answer[len(answer) // 2 :]


def agents() -> list[Conversation]:
    """Four agents, two of which share a head: two whose answers are long, so that memory runs out;
    two whose answers end in what may be a call, so that they park. One of each is cut by its
    template."""
    rng = random.Random(3)
    shared = tuple(rng.randrange(3, 64) for _ in range(20))
    talks = []
    for number in range(4):
        own = tuple(rng.randrange(3, 64) for _ in range(10))
        is_long = number % 4 < 2
        params = SamplingParams(
            max_tokens=110 if is_long else 30, temperature=[0.0, 0.8][number % 2],
            ignore_eos=is_long, stop_token_ids=() if is_long else ENDS,
        )  # fmt: skip
        talks.append(
            Conversation(
                (*shared, *own) if is_long else (*own, *shared), number, 2 if is_long else 4,
                params, second_half if number % 2 else tuple, call_marker="" if is_long else "}",
            )
        )  # fmt: skip
    return talks


def scarce(toy: LoadedTarget, drafter: NeuralDrafter[Any]) -> dict[str, int]:
    """Room for all agents at their start and one of them at its longest; for the drafts of one."""
    return {
        "memory_bytes": toy.target.cache_bytes(512),
        "draft_bytes": 384 * drafter.cache_bytes_per_token,
        "max_batch": 4,
        "prefill_chunk": 64,
    }


def require_plain_texts(toy: LoadedTarget, talks: Sequence[Conversation]) -> None:
    for talk in talks:
        for ticket, done in zip(talk.tickets, talk.done, strict=True):
            want = plain_answer(toy.target, toy.tokenizer, ticket.request, 0, ticket.seed)
            assert done.token_ids == want.token_ids


@pytest.mark.parametrize("name", NEURAL)
def test_drafts_equal_those_of_a_drafter_that_was_never_away(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str
) -> None:
    """TRT-LLM #16888: a drafter that was skipped went stale in silence. Idle stretches, prefix
    hits, parking, preemptions, and states that were dropped for room."""
    drafter = toys.make(name)
    twin = Twin(drafter, toys.make(name), toy.target, window_tokens=1024)
    core = make_core({name: drafter}, RandomPolicy(random.Random(1)), **scarce(toy, drafter))
    converse(core, talks := agents())
    assert twin.faults == []
    assert twin.num_compared > 100
    counters = core.counters
    covered = {
        "preemptions": counters.preemptions,
        "parked hits": counters.parked_hits,
        "prefix hits": core.admission.num_prefix_hits,
        "kept drafts": counters.inherited_drafts,
        "idle stretches": counters.switched[f"none>{name}"],
        "dropped states": core.arms.memory.num_dropped,
    }
    assert all(covered.values()), covered
    assert core.drafting.catch_ups.num_window_starts == core.arms.num_failures == 0
    require_plain_texts(toy, talks)


@pytest.mark.parametrize("name", ["eagle3_chain", "dflash"])
def test_a_window_is_never_less_than_a_window(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str
) -> None:
    """Late first switches, and next turns cut before, inside and behind the window: the drafter
    sees at least the last positions that the window has."""
    drafter = toys.make(name)
    twin = Twin(drafter, toys.make(name), toy.target, WINDOW)
    core = make_core(
        {name: drafter}, RandomPolicy(random.Random(2)), draft_window=WINDOW,
        **scarce(toy, drafter),
    )  # fmt: skip
    converse(core, agents())
    assert twin.faults == []
    assert twin.num_compared > 50
    assert core.drafting.catch_ups.num_window_starts > 0
    assert core.counters.inherited_drafts > 0


@pytest.mark.parametrize("name", ["eagle3_chain", "dflash"])
def test_a_drafter_that_fails_starts_again_from_the_taps(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str
) -> None:
    """It lost all it held; the taps beside the target's KV bring it back, all in one call."""
    drafter = toys.make(name)
    twin = Twin(drafter, toys.make(name), toy.target, window_tokens=1024)
    make_fragile(drafter, random.Random(5), share=0.2)
    core = make_core({name: drafter}, RandomPolicy(random.Random(1)), **scarce(toy, drafter))
    converse(core, talks := agents())
    assert core.arms.num_failures > 10
    assert core.counters.arm_rounds[name] > 50
    assert twin.faults == []
    require_plain_texts(toy, talks)


def watch(drafter: NeuralDrafter[Any]) -> dict[int, DraftTree]:
    """Its proposals from now on, by the length of the context."""
    seen: dict[int, DraftTree] = {}
    propose = drafter.propose

    def noted(rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = propose(rows)
        seen.update({len(row.context): tree for row, tree in zip(rows, trees, strict=True)})
        return trees

    drafter.propose = noted  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize(
    ("name", "temperature"), tuple(zip(NEURAL, (0.0, 0.8, 0.8, 0.8, 0.0), strict=True))
)
def test_taps_of_several_rounds_at_once_equal_round_by_round(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str, temperature: float
) -> None:
    """The text is the same, so the drafts at equal roots must be: chosen at every round, at every
    second and at every fifth."""
    params = SamplingParams(max_tokens=100, temperature=0.8, ignore_eos=True)
    request = GenerationRequest(tuple(range(3, 40)), params)
    drafts: dict[int, dict[int, DraftTree]] = {}
    for period in (1, 2, 5):
        drafter = toys.make(name)
        drafts[period] = watch(drafter)
        core = make_core({name: drafter}, Rhythm(name, period))
        run(core, request)
    for period in (2, 5):
        roots = drafts[1].keys() & drafts[period].keys()
        assert len(roots) > 5
        for root in roots:
            assert has_same_nodes(drafts[period][root], drafts[1][root]), (period, root)


@pytest.mark.parametrize("name", ["eagle3_chain", "dflash"])
@pytest.mark.parametrize(("common", "num_starts"), [(60, 2), (80, 2), (110, 1)])
def test_a_window_that_a_turn_cuts_off_begins_again(
    toy: LoadedTarget, toys: ToyDrafters, make_core: MakeCore, name: str, common: int,
    num_starts: int,
) -> None:  # fmt: skip
    """The drafter began late, with the positions from about 80 on. A turn that keeps none or few
    of them would leave it with next to nothing, though the taps of all positions are there."""
    drafter = toys.make(name)
    twin = Twin(drafter, toys.make(name), toy.target, WINDOW)
    core = make_core({name: drafter}, Rhythm(name, first=90), draft_window=WINDOW, prefill_chunk=64)
    params = SamplingParams(max_tokens=100, temperature=0.8, ignore_eos=True)
    first = GenerationRequest(tuple(range(3, 43)), params)
    ((answer,),) = run(core, first)
    assert core.drafting.catch_ups.num_window_starts == 1
    text = (*first.prompt_ids, *answer.token_ids)
    run(core, GenerationRequest((*text[:common], *range(20, 30)), replace(params, max_tokens=30)))
    assert core.counters.inherited_drafts == 1
    assert core.drafting.catch_ups.num_window_starts == num_starts
    assert twin.num_compared > 10
    assert twin.faults == []
