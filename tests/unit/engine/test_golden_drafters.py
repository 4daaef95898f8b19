"""One engine, the reference's target loaded once, all its drafters: every run as it is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from whiflash.core.draft import DraftTree
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.core.rows import DraftRow
from whiflash.drafters import dflash, eagle3
from whiflash.drafters.ddtree import DDTreeDrafter
from whiflash.drafters.eagle3 import Eagle3Options
from whiflash.models.draft.target_parts import TargetParts
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.engines import run, small_core

DATA = Path(__file__).parents[2] / "data"
EAGLE3, DFLASH = DATA / "eagle3_tiny", DATA / "dflash_tiny"
PROMPTS = "ABCD"
Records = dict[str, torch.Tensor]
Roots = dict[str, list[int]]
GREEDY = SamplingParams(max_tokens=60, ignore_eos=True)
CHAIN = Eagle3Options(tree="chain", depth=6, nodes=6, top_k=1)
TREE = Eagle3Options(tree="eagle2", depth=4, nodes=12, top_k=4)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedTarget:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        return load_target(str(DFLASH / "target"), dtype="float32")


def drafters(loaded: LoadedTarget, suffix: str) -> dict[str, TapDrafter]:
    """By arm, from the folders of one kind of layout; both kinds of weights on one tap plane."""
    target = TargetParts.of_model(loaded.target.runner.model, 512, loaded.tokenizer.fingerprint)
    head, block = EAGLE3 / f"draft{suffix}", dflash.load(DFLASH / f"draft{suffix}", target)
    made: dict[str, TapDrafter] = {
        "chain": eagle3.load(head, target, CHAIN),
        "tree": eagle3.load(head, target, TREE),
        "dflash": dflash.DFlashDrafter(block),
        "ddtree": DDTreeDrafter(block, 7),
    }
    for drafter in made.values():
        loaded.target.keep_taps(drafter.weight_hash, drafter.boundaries, drafter.fuse)
    return made


def watch(drafter: TapDrafter, roots: Roots) -> None:
    """Notes where each sequence's rounds begin, by namespace."""
    propose = drafter.propose

    def noted(rows: Sequence[DraftRow]) -> list[DraftTree]:
        for row in rows:
            roots.setdefault(row.namespace, []).append(len(row.context))
        return propose(rows)

    drafter.propose = noted  # type: ignore[method-assign]


def accepted(records: dict[str, Records], arm: str, prompt: str) -> list[int]:
    """Drafted tokens that the reference accepted, round by round."""
    if arm == "ddtree":
        with_root = records["ddtree"][f"{prompt}.b7.accepted_per_round"]
        return [count - 1 for count in with_root.tolist()]
    if arm == "dflash":
        return list(records["dflash"][f"{prompt}.accept_lens"].tolist())
    return list(records["eagle3"][f"{prompt}.{arm}_accept_lens"].tolist())


@pytest.mark.parametrize("suffix", ["", "_speculators"])
def test_every_recorded_run_at_once(loaded: LoadedTarget, suffix: str) -> None:
    """Sixteen rows: four prompts, each drafted by each arm, in the same forwards."""
    records = {
        "eagle3": load_file(EAGLE3 / "e2e.safetensors"),
        "dflash": load_file(DFLASH / "e2e.safetensors"),
        "ddtree": load_file(DFLASH / "ddtree.safetensors"),
    }
    arms, roots = drafters(loaded, suffix), Roots()
    for drafter in arms.values():
        watch(drafter, roots)
    core = small_core(
        loaded, arms, max_batch=16, prefill_chunk=512, max_draft_nodes=12, max_draft_depth=8
    )
    pairs = [(arm, prompt) for arm in arms for prompt in PROMPTS]
    told = {
        (arm, prompt): records["eagle3" if arm in ("chain", "tree") else "dflash"]
        for arm, prompt in pairs
    }
    prompts = {pair: told[pair][f"{pair[1]}.prompt_ids"].flatten().tolist() for pair in pairs}
    requests = [
        GenerationRequest(tuple(prompts[pair]), GREEDY, "/".join(pair), drafter=pair[0])
        for pair in pairs
    ]
    for (arm, prompt), (got,) in zip(pairs, run(core, *requests), strict=True):
        text = [*prompts[arm, prompt], *got.token_ids]
        expected = told[arm, prompt][f"{prompt}.greedy_output_ids"].flatten().tolist()
        assert text[: len(expected)] == expected, (arm, prompt)
        steps = roots[f"{arm}/{prompt}"]
        taken = [after - before - 1 for before, after in pairwise(steps)]
        wanted = accepted(records, arm, prompt)
        assert taken[: len(wanted)] == wanted, (arm, prompt)
    assert core.counters.mixed_arm_steps > 0
    assert core.arms.num_failures == 0
    core.close()
