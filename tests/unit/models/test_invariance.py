"""Rows are the same bits whatever they are batched, chunked or drafted with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from whiflash.core.protocols import ForwardSegment
from whiflash.models.blocks import BlockSlab
from whiflash.models.cache import SlabCache
from whiflash.models.kernel_attention import KernelBackend
from whiflash.models.linear import RowPlan, can_pack, pack_linears, plan_rows
from whiflash.models.runner import ModelRunner
from whiflash.target.target import LocalTarget

VOCAB = 200
LENGTH = 300


class Reference:
    """A target and the logits of its text, decoded one token at a time."""

    def __init__(self, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCAB, hidden_size=96, intermediate_size=320, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=1024,
        )  # fmt: skip
        model = LlamaForCausalLM(config).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(3)
        min_rows = 1
        if dtype != torch.float64:
            if not can_pack(model):
                pytest.skip(f"oneDNN cannot pack {dtype} weights on this machine")
            plan = plan_rows(pack_linears(model))
            assert plan is not None
            min_rows = plan.min_rows
        runner = ModelRunner(model)
        self.target = LocalTarget(runner, KernelBackend(runner.layout), min_rows)
        self.ids = np.random.default_rng(0).integers(0, VOCAB, LENGTH)
        self.logits = self.decode(self.target.new_cache(1), self.ids)

    def decode(self, cache: SlabCache, ids: np.ndarray) -> torch.Tensor:
        rows = []
        for index in range(len(ids)):
            segment = ForwardSegment(cache, ids[index : index + 1], None, 1)
            rows.append(self.target.forward([segment]).logits)
            cache.commit([0])
        return torch.cat(rows)

    def prefilled(self, length: int, chunk: int = 256) -> SlabCache:
        cache = self.target.new_cache(length)
        for begin in range(0, length, chunk):
            ids = self.ids[begin : min(begin + chunk, length)]
            self.target.forward([ForwardSegment(cache, ids)])
            cache.commit(range(len(ids)))
        return cache


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def reference(request: pytest.FixtureRequest) -> Reference:
    return Reference(request.param)


@pytest.mark.parametrize("chunk", [2, 7, 31, 64, 65, 100, 300])
def test_rechunked_prefill_is_the_same_bits(reference: Reference, chunk: int) -> None:
    cache = reference.target.new_cache(1)
    for begin in range(0, LENGTH, chunk):
        ids = reference.ids[begin : begin + chunk]
        output = reference.target.forward([ForwardSegment(cache, ids, None, len(ids))])
        assert torch.equal(output.logits, reference.logits[begin : begin + len(ids)])
        cache.commit(range(len(ids)))


@pytest.mark.parametrize("depth", [2, 4, 8, 16, 33])
@pytest.mark.parametrize("start", [5, 63, 120, 200])
def test_chains_are_the_same_bits(reference: Reference, start: int, depth: int) -> None:
    cache = reference.prefilled(start)
    ids = reference.ids[start : start + depth]
    output = reference.target.forward([ForwardSegment(cache, ids, None, depth)])
    assert torch.equal(output.logits, reference.logits[start : start + depth])


@pytest.mark.parametrize("start", [1, 50, 64, 126, 191])
@pytest.mark.parametrize("seed", range(4))
def test_every_tree_node_is_the_same_bits(reference: Reference, start: int, seed: int) -> None:
    """Each node against one-at-a-time decoding of its own path, then the commit of one path and
    what is decoded behind it."""
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 24))
    parents = np.array([random.integers(-1, row) for row in range(count)], np.int32)
    nodes = random.integers(0, VOCAB, count)
    cache = reference.prefilled(start)
    plain = [cache.fork(start) for _ in range(count)]
    output = reference.target.forward([ForwardSegment(cache, nodes, parents, count)])
    for row in range(count):
        expected = reference.decode(plain[row], nodes[_path(parents, row)])
        assert torch.equal(output.logits[row], expected[-1])
    deepest = max(range(count), key=lambda row: len(_path(parents, row)))
    cache.commit(_path(parents, deepest))
    after = reference.ids[:3]
    assert torch.equal(reference.decode(cache, after), reference.decode(plain[deepest], after))
    assert _same_bits(cache, plain[deepest])


def _path(parents: np.ndarray, row: int) -> list[int]:
    path: list[int] = []
    while row >= 0:
        path.append(row)
        row = int(parents[row])
    return path[::-1]


def _same_bits(left: SlabCache, right: SlabCache) -> bool:
    assert left.length == right.length
    first, second = left.slab, right.slab
    assert isinstance(first, BlockSlab)
    assert isinstance(second, BlockSlab)
    pairs = (
        zip(first.rows(layer, left.length), second.rows(layer, left.length), strict=True)
        for layer in range(len(first.layout.layers))
    )
    return all(torch.equal(a, b) for pair in pairs for a, b in pair)


def test_mixed_batches_are_the_same_bits(reference: Reference) -> None:
    """Prefill chunks, single rows, chains and a tree of nine sequences in one forward."""
    starts = [0, 3, 40, 64, 100, 127, 150, 220, 250]
    counts = [50, 1, 1, 13, 1, 2, 64, 5, 1]
    segments = [
        ForwardSegment(reference.prefilled(s, 29), reference.ids[s : s + n], None, n)
        for s, n in zip(starts, counts, strict=True)
    ]
    tree = np.array([-1, -1, 0, 2], np.int32)
    nodes = reference.ids[[80, 1, 81, 82]]
    segments.insert(4, ForwardSegment(reference.prefilled(80), nodes, tree, 4))
    logits = reference.target.forward(segments).logits
    expected = [reference.logits[s : s + n] for s, n in zip(starts, counts, strict=True)]
    before = sum(counts[:4])
    tree_logits = logits[before : before + 4]
    assert torch.equal(tree_logits[[0, 2, 3]], reference.logits[80:83])
    rest = torch.cat([logits[:before], logits[before + 4 :]])
    assert torch.equal(rest, torch.cat(expected))


def test_a_resumed_cache_is_the_same_bits(reference: Reference) -> None:
    """A prefix hit inside a block: fork, then prefill the rest in one chunk."""
    whole = reference.prefilled(200)
    for length in (1, 63, 64, 65, 130, 199):
        cache = whole.fork(length)
        ids = reference.ids[length:240]
        output = reference.target.forward([ForwardSegment(cache, ids, None, len(ids))])
        assert torch.equal(output.logits, reference.logits[length:240])


def test_rejected_drafts_leave_no_trace(reference: Reference) -> None:
    cache = reference.prefilled(60)
    for start in range(60, 75):
        wrong = (reference.ids[start : start + 9] + 1) % VOCAB
        wrong[0] = reference.ids[start]
        output = reference.target.forward([ForwardSegment(cache, wrong, None, 9)])
        assert torch.equal(output.logits[0], reference.logits[start])
        cache.commit([0])


def test_calls_respect_the_plan() -> None:
    plan = RowPlan(min_rows=2, max_rows=64)
    for rows in (2, 3, 63, 64, 65, 66, 128, 129, 500):
        calls = plan.calls(rows)
        assert sum(calls) == rows
        assert all(2 <= size <= 64 for size in calls)
