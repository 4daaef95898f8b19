"""Taps that the target keeps beside its KV, against the hidden states of plain forwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf

from whiflash.core.errors import UnsupportedModelError
from whiflash.core.protocols import ForwardSegment
from whiflash.models.kernel_attention import KernelBackend
from whiflash.models.runner import ModelRunner, _own_body
from whiflash.models.taps import TapCapture
from whiflash.target.target import LocalTarget

LAYERS = 3
BOUNDARIES = (1, 2, LAYERS)
SHAPE = {
    "vocab_size": 80,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
# Row 0 is the root; two branches.
TREE = np.array([-1, 0, 0, 1, 2, 4], np.int32)
PATH = [0, 2, 4, 5]


class Streams:
    """A plain model, and what enters each layer and leaves the last."""

    def __init__(self, model: hf.PreTrainedModel) -> None:
        self._model = model.eval()
        self._last: list[torch.Tensor] = []
        model.model.norm.register_forward_pre_hook(lambda _, args: self._last.append(args[0]))

    def at(self, ids: np.ndarray, boundaries: tuple[int, ...]) -> torch.Tensor:
        with torch.inference_mode():
            output = self._model(
                torch.from_numpy(ids)[None], use_cache=False, output_hidden_states=True
            )
        found = [*output.hidden_states[:LAYERS], self._last[-1]]
        return torch.cat([found[boundary][0] for boundary in boundaries], dim=-1)


def _model() -> hf.PreTrainedModel:
    torch.manual_seed(5)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE)).to(torch.float64).eval()


@pytest.fixture(params=["bare", "own"])
def target(request: pytest.FixtureRequest) -> LocalTarget:
    runner = ModelRunner(_model())
    assert runner.is_bare
    if request.param == "own":
        runner._body = _own_body(_model_with_our_attention())
    return LocalTarget(runner, KernelBackend(runner.layout))


def _model_with_our_attention() -> hf.PreTrainedModel:
    return ModelRunner(_model()).model


def _ids(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(3, 80, count)


def _double(taps: torch.Tensor) -> torch.Tensor:
    return 2 * taps


def _sum(taps: torch.Tensor) -> torch.Tensor:
    return taps.sum(-1, keepdim=True)


def test_taps_of_chunks_trees_and_forks_equal_plain_streams(target: LocalTarget) -> None:
    """Several drafters at once, mixed forwards, a rejected branch, a fork that goes its own way."""
    streams, ids, nodes = Streams(_model()), _ids(100), _ids(6) + 1
    target.keep_taps("all", BOUNDARIES, _double)
    target.keep_taps("one", (2,), _sum)
    first, second = target.new_cache(8), target.new_cache(8)
    target.forward([ForwardSegment(first, ids[:70]), ForwardSegment(second, ids[:30])])
    first.commit(range(70))
    second.commit(range(30))
    target.forward([ForwardSegment(second, ids[30:33]), ForwardSegment(first, nodes, TREE)])
    first.commit(PATH)
    second.commit([0])
    fork = first.fork(60)
    target.forward([ForwardSegment(fork, ids[60:75])])
    fork.commit(range(15))
    grown = np.concatenate([ids[:70], nodes[PATH]])
    for cache, text in ((first, grown), (second, ids[:31]), (fork, ids[:75])):
        expected = streams.at(text, BOUNDARIES)
        found = cache.fused_taps("all", 0, len(text))
        assert float((found - 2 * expected).abs().max()) < 1e-10
        found = cache.fused_taps("one", 5, len(text))
        assert float((found - streams.at(text, (2,))[5:].sum(-1, keepdim=True)).abs().max()) < 1e-9
        cache.check_integrity()


@pytest.mark.parametrize("count", [1, 64, 65, 200, 1000])
def test_memory_counts_the_taps(target: LocalTarget, count: int) -> None:
    without = target.cache_bytes(count)
    target.keep_taps("all", BOUNDARIES, _double)
    assert target.new_cache(count).num_bytes == target.cache_bytes(count) > without


def test_logits_do_not_depend_on_taps(target: LocalTarget) -> None:
    ids = _ids(40)

    def logits() -> torch.Tensor:
        cache = target.new_cache(8)
        return target.forward([ForwardSegment(cache, ids, None, 40)]).logits

    without = logits()
    target.keep_taps("all", BOUNDARIES, _double)
    assert torch.equal(logits(), without)


def test_a_model_without_a_final_norm_is_refused_for_its_last_boundary() -> None:
    inner = torch.nn.Module()
    inner.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    with (
        pytest.raises(UnsupportedModelError, match="no final `norm`"),
        TapCapture((1,)).hooked(inner),
    ):
        pass
