"""A row among others drafts what it drafts alone, and as much of it is accepted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import Drafter
from whiflash.core.results import Completion
from whiflash.core.rows import DraftRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.target.load import LoadedTarget
from whiflash.testing.cast import RETRIEVAL
from whiflash.testing.drafters import OracleDrafter, RandomDrafter
from whiflash.testing.engines import run, small_core
from whiflash.testing.requests import Planned
from whiflash.testing.toy_drafters import NEURAL, ToyDrafters
from whiflash.testing.truth import Truth
from whiflash.trajectories.index import TrajectoryIndexes
from whiflash.trajectories.memory_log import MemoryLog

MakeDrafter = Callable[[], Drafter]
SIZES = range(1, 33)
SEED = 7
ARMS = ("oracle", "random", RETRIEVAL, *NEURAL)


def request(number: int) -> GenerationRequest:
    """Row `number`: prompts that repeat themselves, of many lengths; greedy, sampled and filtered;
    answers of 2 to 8 tokens, so that rows come and go. Every row has a namespace of its own: what
    drafters learn from others' texts may differ, and is not what is asked here."""
    rng = random.Random(number)
    phrase = rng.choices(range(3, 64), k=rng.randrange(3, 9))
    params = SamplingParams(
        max_tokens=rng.randrange(2, 9), temperature=(0.0, 0.6, 1.0)[number % 3], seed=number,
        top_k=rng.choice([0, 8]), top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.2]), ignore_eos=True,
    )  # fmt: skip
    return GenerationRequest(tuple(4 * phrase), params, namespace=f"row{number}")


REQUESTS = [request(number) for number in range(max(SIZES))]
Played = tuple[dict[str, list[tuple[int, list[int], list[int]]]], list[Completion]]


def play(loaded: LoadedTarget, name: str, drafter: Drafter, rows: Sequence[int]) -> Played:
    """(by namespace, each draft as (length of the context, ids, parents); completions)."""
    drafts: dict[str, list[tuple[int, list[int], list[int]]]] = {}
    propose = drafter.propose

    def noted(asked: Sequence[DraftRow]) -> list[DraftTree]:
        trees = propose(asked)
        for row, tree in zip(asked, trees, strict=True):
            entry = len(row.context), tree.tokens.tolist(), tree.parents.tolist()
            drafts.setdefault(row.namespace, []).append(entry)
        return trees

    drafter.propose = noted  # type: ignore[method-assign]
    core = small_core(loaded, {name: drafter}, max_batch=32, prefill_chunk=150, max_draft_nodes=12)
    done = run(core, *(pinned(REQUESTS[row], name) for row in rows), seed=SEED)
    assert core.arms.num_failures == 0
    core.close()
    return drafts, [choice for (choice,) in done]


def pinned(asked: GenerationRequest, name: str) -> GenerationRequest:
    """Its arm drafts in full, whatever the price of nodes is in that batch."""
    return GenerationRequest(asked.prompt_ids, asked.params, asked.namespace, drafter=name)


@pytest.fixture(scope="module")
def toys(toy: LoadedTarget, tmp_path_factory: pytest.TempPathFactory) -> ToyDrafters:
    return ToyDrafters(tmp_path_factory.mktemp("drafters"), toy.target)


@pytest.fixture(scope="module")
def truth(toy: LoadedTarget) -> Truth:
    truth = Truth(toy.target, toy.tokenizer)
    truth.extend([Planned(asked, SEED, 0) for asked in REQUESTS])
    return truth


@pytest.fixture
def indexes() -> Iterator[TrajectoryIndexes]:
    made = TrajectoryIndexes(MemoryLog(), 1 << 20)
    yield made
    made.close()


@pytest.mark.parametrize("arm", ARMS)
def test_drafts_and_acceptance_of_a_row_do_not_depend_on_the_others(
    toy: LoadedTarget, toys: ToyDrafters, truth: Truth, indexes: TrajectoryIndexes, arm: str
) -> None:
    """llama.cpp #27117: acceptance collapsed as more sequences drafted at once."""
    made: dict[str, MakeDrafter] = {
        "oracle": lambda: OracleDrafter(truth.continuation, 64, max_tokens=5, num_decoys=1),
        "random": lambda: RandomDrafter(64),
        RETRIEVAL: lambda: RetrievalDrafter(indexes),
    }
    make = made[arm] if arm in made else lambda: toys.make(arm)
    alone = [play(toy, arm, make(), [number]) for number in range(max(SIZES))]
    for size in SIZES:
        drafts, completions = play(toy, arm, make(), range(size))
        for number, got in enumerate(completions):
            own_drafts, (own,) = alone[number]
            namespace = REQUESTS[number].namespace
            assert drafts.get(namespace) == own_drafts.get(namespace), (size, number)
            assert got.token_ids == own.token_ids, (size, number)
            assert got.usage.arms == own.usage.arms, (size, number)
    accepted = [done.usage.arm(arm).accepted for _, (done,) in alone]
    assert sum(accepted) > 0, "a test of acceptance needs some"
