"""A store full of wrong continuations: the text is untouched, and the bad source is starved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.rows import DraftRow
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.target.load import LoadedTarget
from whiflash.testing.engines import run, small_core
from whiflash.trajectories.index import Sealing, TrajectoryIndexes
from whiflash.trajectories.index.live import MIN_BYTES
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.sealed.folder import SealedFolder

PARAMS = SamplingParams(max_tokens=40, temperature=0.9, ignore_eos=True)
REQUESTS = [
    GenerationRequest(prompt, PARAMS)
    for prompt in ((5, 6, 7, 8, 9), (20, 21, 22, 23, 24), (33, 34, 35, 36, 37))
]
LEADS_TOKENS = (3, 4, 5)
WRONG_TOKENS = 6
NUM_PASSES = 8


class CountingDrafter(RetrievalDrafter):
    """Counts the nodes that it proposes, by source."""

    def __init__(self, indexes: TrajectoryIndexes) -> None:
        super().__init__(indexes)
        self.num_nodes: Counter[str] = Counter()

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        trees = super().propose(rows)
        for tree in trees:
            self.num_nodes[tree.source] += len(tree)
        return trees


def texts(drafter: RetrievalDrafter | None, toy: LoadedTarget) -> list[tuple[int, ...]]:
    core = small_core(toy, {} if drafter is None else {"retrieval": drafter})
    found = [choice.token_ids for choices in run(core, *REQUESTS) for choice in choices]
    core.close()
    return found


def poison(log: MemoryLog, answers: list[tuple[int, ...]]) -> None:
    """Whatever stands in front of a token of the text, another one follows."""
    for number, (request, answer) in enumerate(zip(REQUESTS, answers, strict=True)):
        whole = (*request.prompt_ids, *answer)
        for place in range(max(LEADS_TOKENS), len(whole)):
            wrong = [(whole[place] + 1 + step) % 64 for step in range(WRONG_TOKENS)]
            for lead in LEADS_TOKENS:
                tokens = np.array([*whole[place - lead : place], *wrong], np.int32)
                log.append(TrajectoryRecord("local", f"bad-{number}-{place}", tokens))


def test_the_text_is_unchanged_and_the_bad_source_is_starved(
    toy: LoadedTarget, tmp_path: Path
) -> None:
    plain = texts(None, toy)
    log = MemoryLog()
    sealing = Sealing(SealedFolder.beside_log(tmp_path))
    with TrajectoryIndexes(log, MIN_BYTES, sealing=sealing) as indexes:
        indexes.live("local")
        poison(log, plain)
        assert indexes.flush()
        assert indexes.flush_sealed()
        assert indexes.num_sealed_tokens > 0
        drafter = CountingDrafter(indexes)
        bad = []
        for _ in range(NUM_PASSES):
            drafter.num_nodes.clear()
            assert texts(drafter, toy) == plain
            bad.append({name: drafter.num_nodes[name] for name in ("live", "sealed")})
        assert all(bad[0].values()), "both tiers were fooled"
        # Of the six wrong tokens on offer at each place, less than one is still tried.
        num_tokens = sum(len(text) for text in plain)
        assert sum(bad[-1].values()) < min(sum(bad[0].values()), 0.75 * num_tokens), bad
        drafter.check_integrity()
        indexes.check_integrity()
