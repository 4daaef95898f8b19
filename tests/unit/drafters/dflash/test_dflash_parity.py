"""The DFlash reference's records: rounds, K/V, marginals, tokens, whole runs, both layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.dflash import DFlashDrafter
from whiflash.sampling.acceptance import walk
from whiflash.testing.tap_rounds import NAMESPACE, PlainTarget, TapRounds

ROUNDS = [("A", 7), ("B", 2), ("C", 2), ("D", 2)]
NONE = np.zeros(0, np.int32)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.fixture(params=ROUNDS, ids=lambda pair: pair[0])
def recorded(request: pytest.FixtureRequest, golden: Path) -> tuple[dict[str, torch.Tensor], int]:
    prompt, count = request.param
    return load_file(golden / f"rounds_{prompt}.safetensors"), count


class Replay:
    """Feeds a drafter what the reference's draft was fed, round by round."""

    def __init__(self, drafter: DFlashDrafter, records: dict[str, torch.Tensor]) -> None:
        self.drafter, self.records = drafter, records
        self.ids = records["prompt_ids"].tolist()
        self.ids.append(int(records["prefill_last_logits"].argmax()))
        drafter.open(1, NAMESPACE, np.array(self.ids[:-1], np.int32), NONE)

    def of(self, number: int, name: str) -> torch.Tensor:
        return self.records[f"r{number:02d}.{name}"]

    @property
    def row(self) -> DraftRow:
        return DraftRow(1, NAMESPACE, np.array(self.ids, np.int32), 64, 64)

    def absorb(self, *numbers: int) -> None:
        taps = torch.cat([self.of(number, "target_hidden")[0] for number in numbers])
        start = self.drafter.absorbed(1)
        ids = np.array(self.ids[start : start + len(taps) + 1], np.int32)
        self.drafter.absorb([CatchUp(1, start, ids, self.drafter.fuse(taps))])

    def accept(self, number: int) -> None:
        accepted = int(self.of(number, "accept_len"))
        self.ids += self.of(number, "draft_tokens")[:accepted].tolist()
        self.ids.append(int(self.of(number, "next_root")))

    def hidden(self) -> torch.Tensor:
        held = self.drafter._open[1]
        return self.drafter._slots([(held, self.row)], [self.drafter.parts.block_size - 1])


def test_every_round_of_the_reference(
    recorded: tuple[dict[str, torch.Tensor], int], layout: str, make_drafter: Callable
) -> None:
    records, count = recorded
    replay = Replay(make_drafter(layout), records)
    drafter = replay.drafter
    for number in range(count):
        assert drafter.absorbed(1) == int(replay.of(number, "cache_len_before"))
        assert replay.ids[-1] == int(replay.of(number, "verify_input_ids")[0, 0])
        replay.absorb(number)
        hidden = replay.hidden()
        assert_close(hidden, replay.of(number, "draft_hidden")[0, 1:])
        assert_close(drafter.parts.head(hidden), replay.of(number, "draft_logits")[0])
        [tree] = drafter.propose([replay.row])
        assert tree.is_chain
        assert tree.tokens.tolist() == replay.of(number, "draft_tokens").tolist()
        replay.accept(number)


def test_keys_and_values_of_context_and_block(
    recorded: tuple[dict[str, torch.Tensor], int], layout: str, make_drafter: Callable
) -> None:
    replay = Replay(make_drafter(layout), recorded[0])
    for number in (0, 1):
        replay.absorb(number)
        replay.hidden()
        cache = replay.drafter._open[1].cache
        root = len(replay.ids) - 1
        assert cache.end == root  # the block's own are scratch and leave no trace
        for layer in (0, 1):
            for name, found in zip("kv", cache.read(layer, 8), strict=True):
                expected = replay.of(number, f"kv_before_crop.layer{layer}.{name}")
                assert_close(found, expected[0])
        replay.accept(number)


def test_two_rounds_absorbed_at_once_equal_two_rounds(
    recorded: tuple[dict[str, torch.Tensor], int], layout: str, make_drafter: Callable
) -> None:
    """Taps of r00 and r01 in one catch-up, then round 01's draft (drafters.md 4.3, item 10)."""
    records, _ = recorded
    steady, lazy = Replay(make_drafter(layout), records), Replay(make_drafter(layout), records)
    steady.absorb(0)
    steady.drafter.propose([steady.row])
    for replay in (steady, lazy):
        replay.accept(0)
    steady.absorb(1)
    lazy.absorb(0, 1)
    assert_close(lazy.hidden(), lazy.of(1, "draft_hidden")[0, 1:])
    assert torch.equal(lazy.hidden(), steady.hidden())
    [tree] = lazy.drafter.propose([lazy.row])
    assert tree.tokens.tolist() == lazy.of(1, "draft_tokens").tolist()


@pytest.fixture(scope="module")
def runs(golden: Path) -> dict[str, torch.Tensor]:
    return load_file(golden / "e2e.safetensors")


def run_like_the_reference(rounds: TapRounds, num_tokens: int = 32) -> list[int]:
    """Its loop counts committed tokens, so that it goes on while `num_tokens` are emitted and
    the last of them is a root."""
    return rounds.run(num_tokens + 1)[:-1]


@pytest.mark.parametrize("prompt", "ABCD")
def test_whole_runs(
    runs: dict[str, torch.Tensor],
    prompt: str,
    layout: str,
    make_drafter: Callable,
    target: PlainTarget,
) -> None:
    rounds = TapRounds(target, make_drafter(layout), runs[f"{prompt}.prompt_ids"].tolist())
    assert run_like_the_reference(rounds) == runs[f"{prompt}.dflash_output_ids"].tolist()
    assert rounds.accepted == runs[f"{prompt}.accept_lens"].tolist()


@pytest.mark.parametrize("prompt", "ABCD")
def test_whole_runs_with_a_smaller_block(
    runs: dict[str, torch.Tensor], prompt: str, make_drafter: Callable, target: PlainTarget
) -> None:
    drafter = make_drafter("z-lab", block=4)
    rounds = TapRounds(target, drafter, runs[f"{prompt}.prompt_ids"].tolist())
    assert run_like_the_reference(rounds) == runs[f"{prompt}.greedy_output_ids"].tolist()
    assert rounds.accepted == runs[f"{prompt}.accept_lens_block4"].tolist()


def test_the_plain_target_gives_the_recorded_taps(
    recorded: tuple[dict[str, torch.Tensor], int], target: PlainTarget, make_drafter: Callable
) -> None:
    records, _ = recorded
    drafter = make_drafter()
    assert drafter.boundaries == (2, 6)
    output = target.forward(records["prompt_ids"].tolist())
    assert_close(output.taps(drafter.boundaries), records["prefill_taps"][0])
    assert_close(output.logits[-1], records["prefill_last_logits"][0, 0])


def test_the_block_and_its_verification(
    recorded: tuple[dict[str, torch.Tensor], int], target: PlainTarget, make_drafter: Callable
) -> None:
    """Block embeddings, positions, verify rows, taps and acceptance of every recorded round."""
    records, count = recorded
    replay = Replay(make_drafter(), records)
    parts = replay.drafter.parts
    for number in range(count):
        root = len(replay.ids) - 1
        block = [replay.ids[-1], *[parts.mask_token_id] * 7]
        assert torch.equal(parts.embedding[block], replay.of(number, "noise_embedding")[0])
        first = int(replay.of(number, "cache_len_before"))
        assert replay.of(number, "position_ids")[0].tolist() == list(range(first, root + 8))
        replay.absorb(number)
        [tree] = replay.drafter.propose([replay.row])
        output = target.forward(replay.ids, tree)
        assert_close(output.logits[root:], replay.of(number, "verify_logits")[0])
        assert_close(
            output.taps(replay.drafter.boundaries)[root:], replay.of(number, "verify_taps")[0]
        )
        chosen = output.logits[root:].argmax(-1).tolist()
        assert chosen == replay.of(number, "target_argmax").tolist()
        outcome = walk(tree, lambda row, _, chosen=chosen: chosen[row])
        assert outcome.accepted == int(replay.of(number, "accept_len"))
        assert outcome.tokens[-1] == int(replay.of(number, "next_root"))
        replay.accept(number)
