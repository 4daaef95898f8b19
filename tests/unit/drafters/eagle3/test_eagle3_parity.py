"""Every record of the reference: rounds, trees, masks, K/V, whole texts, both layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from whiflash.core.draft import DraftTree
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.eagle3 import Eagle3Drafter, Eagle3Options
from whiflash.drafters.eagle3.rows import AbsorbedRows
from whiflash.models.draft.cache import DraftCache

Golden = Callable[[str], dict[str, torch.Tensor]]
TOLERANCE = 1e-4
# The reference's total_token, depth, top_k: 7, 5, 1 and 13, 3, 4.
OPTIONS = {
    "chain": Eagle3Options(tree="chain", depth=6, nodes=6, top_k=1),
    "tree": Eagle3Options(tree="eagle2", depth=4, nodes=12, top_k=4),
}
LAYOUTS = ("draft", "draft_speculators")
FILES = [f"{kind}_rounds_{prompt}" for kind in OPTIONS for prompt in "ABCD"]


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def rounds(record: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    names = sorted({key.split(".")[0] for key in record if key.startswith("r")})
    return [
        {key.partition(".")[2]: v for key, v in record.items() if key.startswith(f"{name}.")}
        for name in names
    ]


def catch_up(drafter: Eagle3Drafter, data: dict[str, torch.Tensor]) -> CatchUp:
    start = int(data["stable_kv_len_before"])
    ids = data["input_ids"][0, start:].numpy().astype(np.int32)
    return CatchUp(0, start, ids, drafter.fuse(data["target_taps_in"][0]))


def draft_row(data: dict[str, torch.Tensor]) -> DraftRow:
    return DraftRow(0, "test", data["input_ids"][0].numpy().astype(np.int32), 99, 99)


class Steps:
    """Notes what the drafter's head sees and makes in each of its calls."""

    def __init__(self, drafter: Eagle3Drafter) -> None:
        self.calls: list[dict[str, Any]] = []
        body, rope = drafter._body, drafter._rope
        run, finish, turns, embed = body.run, body.finish, rope.turns, drafter._embed
        note: dict[str, Any] = {}

        def embedding(ids: Any) -> torch.Tensor:
            note["ids"] = ids.tolist()
            return embed(ids)

        def turning(positions: torch.Tensor) -> Any:
            note["positions"] = positions.tolist()
            return turns(positions)

        def running(embedded: torch.Tensor, feature: torch.Tensor, *rest: Any) -> torch.Tensor:
            out = run(embedded, feature, *rest)
            self.calls.append({**note, "hidden_in": feature, "hidden_out": out})
            return out

        def finishing(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            feature, logits = finish(out)
            self.calls[-1]["logits"] = logits
            return feature, logits

        body.run, body.finish, rope.turns = running, finishing, turning  # type: ignore[method-assign]
        drafter._embed = embedding  # type: ignore[method-assign]


def assert_step(call: dict[str, Any], data: dict[str, torch.Tensor], step: int) -> None:
    def record(name: str) -> torch.Tensor:
        found = data[f"s{step}.{name}"]
        return found[0] if found.dim() > 2 else found

    assert_close(call["logits"], data[f"s{step}.logits"])
    if step == 0:
        assert_close(call["hidden_out"], record("hidden_out")[-1:])
        return
    assert call["ids"] == data[f"s{step}.draft_input_ids"][0].tolist()
    assert call["positions"] == data[f"s{step}.position_ids"][0].tolist()
    assert_close(call["hidden_in"], record("hidden_in"))
    assert_close(call["hidden_out"], record("hidden_out"))


def assert_tree(tree: DraftTree, data: dict[str, torch.Tensor]) -> None:
    """Tokens, depths, ancestor mask and root-to-leaf paths."""
    assert tree.flaw() is None
    assert tree.tokens.tolist() == data["draft_tokens"][0, 1:].tolist()
    assert tree.depths.tolist() == data["tree_position_ids"][1:].tolist()
    seen = np.eye(len(tree) + 1, dtype=bool)
    for row, parent in enumerate(tree.parents.tolist(), start=1):
        seen[row] |= seen[parent]
    np.testing.assert_array_equal(seen, data["tree_mask"].numpy())
    paths = {tuple(i for i in path if i >= 0) for path in data["retrieve_indices"].tolist()}
    leaves = set(range(1, len(tree) + 1)) - set(tree.parents.tolist())
    assert {tuple(np.flatnonzero(seen[leaf]).tolist()) for leaf in leaves} == paths


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FILES)
def test_rounds(golden: Golden, make_drafter: Any, name: str, layout: str) -> None:
    drafter: Eagle3Drafter = make_drafter(OPTIONS[name.split("_")[0]], layout)
    drafter.open(0, "test", np.zeros(0, np.int32), np.zeros(0, np.int32))
    steps = Steps(drafter)
    num_rounds = 0
    for data in rounds(golden(name)):
        row = catch_up(drafter, data)
        assert_close(row.fused, data["fc_out"][0])
        assert drafter.absorbed(0) == int(data["stable_kv_len_before"])
        drafter.absorb([row])
        assert drafter.absorbed(0) == int(data["stable_kv_len_after"])
        if "stable_kv.k" in data:
            keys, values = drafter._open[0].cache.read(0)
            assert_close(keys, data["stable_kv.k"][0])
            assert_close(values, data["stable_kv.v"][0])
        steps.calls.clear()
        assert_tree(drafter.propose([draft_row(data)])[0], data)
        num_steps = len(
            {key.split(".")[0] for key in data if key.startswith("s") and "kv" not in key}
        )
        assert len(steps.calls) == num_steps
        for step, call in enumerate(steps.calls):
            assert_step(call, data, step)
        num_rounds += 1
    assert num_rounds >= 2


@pytest.mark.parametrize("name", FILES)
def test_all_positions_of_a_prompt_in_full(golden: Golden, make_drafter: Any, name: str) -> None:
    """What the reference computes for every position and a KV-only prefill leaves out."""
    drafter: Eagle3Drafter = make_drafter()
    data = rounds(golden(name))[0]
    fused = drafter.fuse(data["target_taps_in"][0])
    count = len(fused)
    batch = AbsorbedRows([DraftCache(drafter._cache_shape)], [count])
    with torch.inference_mode():
        embedded = drafter._embed(data["s0.draft_input_ids"][0].numpy())
        out = drafter._body.run(embedded, fused, drafter._turns(np.arange(count)), batch)
        logits = drafter._body.finish(out)[1]
    assert_close(out, data["s0.hidden_out"][0])
    assert_close(logits, data["s0.logits_all_positions"])


def target_rows(
    model: PreTrainedModel, ids: list[int], tree: DraftTree, boundaries: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, taps) of the root and the nodes, by a plain forward of each root-to-node path."""
    logits, taps = [], []
    for row in range(len(tree) + 1):
        path = torch.tensor([[*ids, *tree.path_tokens(row)]])
        with torch.inference_mode():
            output = model(path, output_hidden_states=True)
        logits.append(output.logits[0, -1])
        taps.append(torch.cat([output.hidden_states[b][0, -1] for b in boundaries]))
    return torch.stack(logits), torch.stack(taps)


def accepted_rows(logits: torch.Tensor, tree: DraftTree) -> tuple[list[int], int]:
    """Rows from the root along the target's argmax, and the new root."""
    children, rows = tree.children(), [0]
    while (child := children[rows[-1]].get(int(logits[rows[-1]].argmax()))) is not None:
        rows.append(child)
    return rows, int(logits[rows[-1]].argmax())


@pytest.mark.parametrize("name", FILES)
def test_verification_of_recorded_trees(
    golden: Golden, toy_target: PreTrainedModel, make_drafter: Any, name: str
) -> None:
    """The target on our tree: its logits, its taps at our boundaries, what is accepted."""
    drafter: Eagle3Drafter = make_drafter(OPTIONS[name.split("_")[0]])
    data = rounds(golden(name))[0]
    drafter.open(0, "test", np.zeros(0, np.int32), np.zeros(0, np.int32))
    drafter.absorb([catch_up(drafter, data)])
    tree = drafter.propose([draft_row(data)])[0]
    ids = data["input_ids"][0].tolist()
    logits, taps = target_rows(toy_target, ids, tree, drafter.boundaries)
    assert_close(logits, data["verify_logits"])
    assert_close(taps, data["verify_taps"])
    assert len(accepted_rows(logits, tree)[0]) - 1 == int(data["accept_len"])


@pytest.mark.parametrize("prompt", "ABCD")
@pytest.mark.parametrize("kind", OPTIONS)
def test_whole_texts(
    golden: Golden, toy_target: PreTrainedModel, feeder: Any, kind: str, prompt: str
) -> None:
    """Round by round as the reference: the same text, and the same number accepted each time."""
    record = golden("e2e")
    expected = record[f"{prompt}.{kind}_output_ids"].flatten().tolist()
    greedy = record[f"{prompt}.greedy_output_ids"].flatten().tolist()
    lengths = record[f"{prompt}.{kind}_accept_lens"].tolist()
    source = feeder(OPTIONS[kind])
    drafter: Eagle3Drafter = source.drafter
    drafter.open(0, "test", np.zeros(0, np.int32), np.zeros(0, np.int32))
    ids = record[f"{prompt}.prompt_ids"].flatten().tolist()
    with torch.inference_mode():
        ids.append(int(toy_target(torch.tensor([ids])).logits[0, -1].argmax()))
    found = []
    for _ in lengths:
        drafter.absorb([source.catch_up(0, ids)])
        tree = drafter.propose([source.row(0, ids)])[0]
        logits, _ = target_rows(toy_target, ids, tree, drafter.boundaries)
        path, root = accepted_rows(logits, tree)
        found.append(len(path) - 1)
        ids += [*tree.path_tokens(path[-1]), root]
    assert found == lengths
    shared = min(len(ids), len(expected), len(greedy))
    assert shared >= len(expected) - 7
    assert ids[:shared] == expected[:shared] == greedy[:shared]


def test_layouts_are_one_drafter(make_drafter: Any) -> None:
    first, second = (make_drafter(layout=layout) for layout in LAYOUTS)
    assert first.boundaries == second.boundaries == (2, 4, 5)
    pairs = zip(first._body.state_dict().items(), second._body.state_dict().items(), strict=True)
    for (name, weight), (twin_name, twin) in pairs:
        assert name == twin_name
        assert torch.equal(weight, twin)
