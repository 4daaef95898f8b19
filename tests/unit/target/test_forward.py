"""Ragged, chunked and tree forwards of many families against their own plain causal forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from whiflash.core.protocols import ForwardSegment
from whiflash.models.backend import AttentionBackend, SdpaBackend
from whiflash.models.kernel_attention import KernelBackend
from whiflash.models.linear import PackedLinear, can_pack, pack_linears, plan_rows
from whiflash.models.runner import ModelRunner, allow_wide_experts
from whiflash.target.target import LocalTarget

VOCAB = 96
WINDOW = 23
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaConfig(**COMMON),
    "qwen3": lambda: hf.Qwen3Config(**COMMON, head_dim=24),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **COMMON, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "olmo3": lambda: hf.Olmo3Config(**COMMON, **MIXED),
    "gpt_oss": lambda: hf.GptOssConfig(
        **COMMON, **MIXED, head_dim=16, num_local_experts=4, num_experts_per_tok=2
    ),
    "deepseek_v3": lambda: hf.DeepseekV3Config(
        **{**COMMON, "num_attention_heads": 4, "num_key_value_heads": 4},
        moe_intermediate_size=32, first_k_dense_replace=1, n_routed_experts=4, n_group=2,
        topk_group=1, num_experts_per_tok=2, q_lora_rank=20, kv_lora_rank=12,
        qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
    ),
    "gemma3": lambda: hf.Gemma3TextConfig(**COMMON, **MIXED, head_dim=16),
    "gemma2_soft_caps": lambda: hf.Gemma2Config(
        **COMMON, **MIXED, head_dim=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0
    ),
}  # fmt: skip
# Its router computes in float32 whatever the model's dtype, by a product of matrices whose result
# depends on the number of rows.
FLOAT32_ROUTER = "deepseek_v3"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Row 0 follows the prefix; two branches, one of them three deep, siblings at every level.
TREE = np.array([-1, 0, 0, 1, 2, 3, -1, 5, 3, 4], np.int32)


def _wide_eager(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor, scaling: float, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, **_: object,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Eager attention that keeps float64: transformers' own rounds its softmax to float32."""
    group = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(group, 1).transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + attention_mask
    if s_aux is not None:
        sinks = s_aux[None, :, None, None].expand(scores.shape[0], -1, scores.shape[2], 1)
        scores = torch.cat([scores, sinks], dim=3)
    odds = torch.softmax(scores, dim=3)[..., : key.shape[2]]
    return (odds @ value.repeat_interleave(group, 1)).transpose(1, 2).contiguous(), None


AttentionInterface.register("wide_eager", _wide_eager)
AttentionMaskInterface.register("wide_eager", eager_mask)


class Pair:
    """A target and, from a twin model, the plain causal logits of any ids."""

    def __init__(self, family: str, dtype: torch.dtype, backend: str) -> None:
        self.tolerance = TOLERANCE[torch.float32 if family == FLOAT32_ROUTER else dtype]
        self._plain = _model(family, dtype)
        self._plain.set_attn_implementation("eager" if dtype == torch.float32 else "wide_eager")
        allow_wide_experts(self._plain)
        runner = ModelRunner(_model(family, dtype))
        make: Callable[[Any], AttentionBackend] = {"kernel": KernelBackend, "sdpa": SdpaBackend}[
            backend
        ]
        self.runner = runner
        self.target = LocalTarget(runner, make(runner.layout))

    def expected(self, ids: np.ndarray) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = self._plain(torch.from_numpy(ids)[None], use_cache=False).logits
        return logits[0]

    def assert_close(self, logits: torch.Tensor, expected: torch.Tensor) -> None:
        assert logits.shape == expected.shape
        assert float((logits - expected).abs().max()) <= self.tolerance


def _model(family: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(3)
    model = hf.AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sinks" in name:
                parameter.normal_()
            elif parameter.dim() > 1:
                parameter.mul_(4)
    return model.to(dtype).eval()


def _ids(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, VOCAB, count)


CASES = [
    (family, dtype, backend)
    for family in FAMILIES
    for dtype in TOLERANCE
    for backend in ("kernel", "sdpa")
]


@pytest.fixture(params=CASES, ids=lambda c: f"{c[0]}-{str(c[1])[6:]}-{c[2]}")
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(*request.param)


def test_mixed_chunks_trees_and_rows_equal_plain_forwards(pair: Pair) -> None:
    """Three sequences across block borders: prefill chunks, a tree, a chain and single rows in
    the same forwards; then the committed caches go on as if nothing had been drafted."""
    target = pair.target
    first, second, third = (_ids(seed, 150) for seed in (1, 2, 3))
    caches = [target.new_cache(8) for _ in range(3)]
    for begin, end in ((0, 1), (1, 60), (60, 126)):
        output = target.forward(
            [
                ForwardSegment(cache, ids[begin:end], None, end - begin)
                for cache, ids in zip(caches, (first, second, third), strict=True)
            ]
        )
        whole = [pair.expected(ids[:end])[begin:end] for ids in (first, second, third)]
        pair.assert_close(output.logits, torch.cat(whole))
        for cache in caches:
            cache.commit(range(end - begin))

    nodes = _ids(4, len(TREE))
    output = target.forward(
        [
            ForwardSegment(caches[0], nodes, TREE, len(TREE)),
            ForwardSegment(caches[1], second[126:127], None, 1),
            ForwardSegment(caches[2], third[126:139], None, 13),
        ]
    )
    tree_logits = [
        pair.expected(np.concatenate([first[:126], nodes[_path(row)]]))[-1]
        for row in range(len(TREE))
    ]
    pair.assert_close(output.logits[: len(TREE)], torch.stack(tree_logits))
    pair.assert_close(output.logits[len(TREE)], pair.expected(second[:127])[-1])
    pair.assert_close(output.logits[len(TREE) + 1 :], pair.expected(third[:139])[126:])

    caches[0].commit([0, 1, 3, 5, 7])
    caches[1].commit([0])
    caches[2].commit(range(6))
    grown = np.concatenate([first[:126], nodes[[0, 1, 3, 5, 7]], first[126:130]])
    output = target.forward(
        [
            ForwardSegment(caches[2], third[132:133], None, 1),
            ForwardSegment(caches[0], grown[131:], None, 4),
        ]
    )
    pair.assert_close(output.logits[0], pair.expected(third[:133])[-1])
    pair.assert_close(output.logits[1:], pair.expected(grown)[131:])
    for cache in caches:
        cache.check_integrity()


def _path(row: int) -> list[int]:
    path: list[int] = []
    while row >= 0:
        path.append(row)
        row = int(TREE[row])
    return path[::-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_called_directly_only_where_that_is_equal(family: str) -> None:
    """The shortcuts hold for all of these but the head of a model that caps its logits."""
    runner = ModelRunner(_model(family, torch.float32))
    assert runner.is_bare
    assert runner.has_plain_head == (family != "gemma2_soft_caps")


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_linears_keep_the_function(family: str) -> None:
    model = _model(family, torch.float32)
    if not can_pack(model):
        pytest.skip("oneDNN cannot pack float32 weights on this machine")
    pair = Pair(family, torch.float32, "sdpa")
    packed = pack_linears(model)
    assert packed
    assert not any(type(module) is torch.nn.Linear for module in model.modules())
    assert all(isinstance(module, PackedLinear) for module in packed)
    plan = plan_rows(packed)
    runner = ModelRunner(model)
    target = LocalTarget(runner, SdpaBackend(runner.layout), plan.min_rows if plan else 1)
    ids = _ids(7, 90)
    output = target.forward([ForwardSegment(target.new_cache(90), ids, None, 90)])
    pair.assert_close(output.logits, pair.expected(ids))


@pytest.mark.parametrize("num_rows", [1, 2])
def test_hidden_states_are_those_after_the_norm(num_rows: int) -> None:
    pair = Pair("llama", torch.float64, "kernel")
    ids = _ids(8, 12)
    output = pair.target.forward([ForwardSegment(pair.target.new_cache(12), ids, None, num_rows)])
    assert output.hidden.shape == (num_rows, COMMON["hidden_size"])
    pair.assert_close(pair.runner.logits(output.hidden), pair.expected(ids)[-num_rows:])


def test_a_forward_without_logits_only_writes_the_cache() -> None:
    pair = Pair("llama", torch.float64, "kernel")
    target, ids = pair.target, _ids(9, 20)
    cache = target.new_cache(20)
    assert target.forward([ForwardSegment(cache, ids[:19])]).logits.shape == (0, VOCAB)
    cache.commit(range(19))
    output = target.forward([ForwardSegment(cache, ids[19:], None, 1)])
    pair.assert_close(output.logits, pair.expected(ids)[-1:])


def test_padding_changes_no_row_and_no_cache() -> None:
    pair = Pair("llama", torch.float64, "kernel")
    padded = LocalTarget(pair.runner, pair.target.backend, min_rows=8)
    cache = padded.new_cache(4)
    ids = _ids(10, 5)
    for index in range(5):
        output = padded.forward([ForwardSegment(cache, ids[index : index + 1], None, 1)])
        pair.assert_close(output.logits, pair.expected(ids[: index + 1])[-1:])
        cache.commit([0])
    assert cache.length == 5


BAD_SEGMENTS: dict[str, Callable[[Any], list[ForwardSegment]]] = {
    "nothing": lambda _: [],
    "the same cache twice": lambda cache: [ForwardSegment(cache, _ids(1, 2))] * 2,
    "an empty segment": lambda cache: [ForwardSegment(cache, _ids(1, 0))],
    "more logits than rows": lambda cache: [ForwardSegment(cache, _ids(1, 2), None, 3)],
    "a parent behind its child": lambda cache: [
        ForwardSegment(cache, _ids(1, 2), np.array([-1, 1], np.int32))
    ],
    "an id outside the vocabulary": lambda cache: [ForwardSegment(cache, np.array([VOCAB]))],
}


@pytest.mark.parametrize("what", BAD_SEGMENTS)
def test_segments_that_break_the_contract_are_refused(what: str) -> None:
    target = Pair("llama", torch.float64, "kernel").target
    cache = target.new_cache(4)
    with pytest.raises((ValueError, IndexError)):
        target.forward(BAD_SEGMENTS[what](cache))
    assert cache.num_scratch == 0
    cache.check_integrity()


def test_memory_is_what_the_target_says() -> None:
    target = Pair("deepseek_v3", torch.float32, "kernel").target
    for count in (1, 64, 65, 200):
        cache = target.new_cache(1)
        target.forward([ForwardSegment(cache, _ids(1, count))])
        assert cache.num_bytes == target.cache_bytes(count)
        cache.release()
        assert cache.num_bytes == 0
