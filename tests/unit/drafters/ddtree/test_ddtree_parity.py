"""The DDTree reference's records: marginals, trees, accepted paths, whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from whiflash.testing.tap_rounds import PlainTarget, TapRounds


@pytest.fixture(scope="module")
def records(golden: Path) -> dict[str, torch.Tensor]:
    return load_file(golden / "ddtree.safetensors")


@pytest.fixture(scope="module")
def prompts(golden: Path) -> dict[str, list[int]]:
    runs = load_file(golden / "e2e.safetensors")
    return {name: runs[f"{name}.prompt_ids"].tolist() for name in "ABCD"}


@pytest.mark.parametrize("layout", ["z-lab", "speculators"])
@pytest.mark.parametrize("budget", [7, 16])
@pytest.mark.parametrize("prompt", "ABCD")
def test_whole_runs(
    records: dict[str, torch.Tensor],
    prompts: dict[str, list[int]],
    prompt: str,
    budget: int,
    layout: str,
    make_drafter: Callable,
    target: PlainTarget,
) -> None:
    """The reference counts committed tokens: it goes on while the last token is a root."""
    name = f"{prompt}.b{budget}"
    rounds = TapRounds(target, make_drafter(budget, layout), prompts[prompt])
    assert rounds.run(33)[:-1] == records[f"{name}.output_ids"].tolist()
    assert [1 + a for a in rounds.accepted] == records[f"{name}.accepted_per_round"].tolist()


@pytest.mark.parametrize("budget", [7, 16])
@pytest.mark.parametrize("prompt", "ABCD")
def test_recorded_rounds(
    records: dict[str, torch.Tensor],
    prompts: dict[str, list[int]],
    prompt: str,
    budget: int,
    make_drafter: Callable,
    target: PlainTarget,
) -> None:
    rounds = TapRounds(target, make_drafter(budget), prompts[prompt])
    for number in (0, 1):

        def of(name: str, number: int = number) -> torch.Tensor:
            return records[f"{prompt}.b{budget}.r{number:02d}.{name}"]

        rounds.absorb()
        drafter, row = rounds.drafter, rounds.row()
        held = drafter._open[0]
        logits = drafter.parts.head(drafter._slots([(held, row)], [7]))
        torch.testing.assert_close(logits, of("draft_logits"), rtol=0, atol=1e-4)
        [tree] = drafter.propose([row])
        assert tree.tokens.tolist() == of("node_token_ids").tolist()
        assert tree.depths.tolist() == of("node_depths").tolist()
        assert [-1, *tree.parents.tolist()] == of("parents").tolist()
        root = len(rounds.ids) - 1
        assert [root, *(root + tree.depths)] == of("verify_position_ids")[0].tolist()
        assert rounds.verify(tree) == of("accepted_indices").tolist()


def test_survival_falls_along_paths_and_is_a_probability(
    prompts: dict[str, list[int]], make_drafter: Callable, target: PlainTarget
) -> None:
    rounds = TapRounds(target, make_drafter(24), prompts["A"])
    tree = rounds.round()
    assert tree.flaw() is None
    above = np.concatenate([[1.0], tree.survival])[tree.parents]
    assert (tree.survival <= above).all()
    assert len(np.unique(tree.survival)) > 3
