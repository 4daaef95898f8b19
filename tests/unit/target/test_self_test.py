"""The load-time proof: right models pass, broken attention and row-dependent layers are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from whiflash.core.errors import UnsupportedModelError
from whiflash.models.attention import AttentionParams
from whiflash.models.ragged import RaggedRows
from whiflash.models.sdpa import SdpaAttention
from whiflash.target import exactness
from whiflash.target.assembly import KERNEL, PLAIN, SDPA, TargetSettings, build_target
from whiflash.target.choice import settle_min_rows
from whiflash.target.exactness import find_exactness
from whiflash.target.self_test import plain_logits, require_close, require_equal_to_eager
from whiflash.target.slice import MAX_WINDOW, cut
from whiflash.target.target import LocalTarget
from whiflash.testing.toy import toy_model

VOCAB = 64
IDS = torch.randint(3, VOCAB, (400,), generator=torch.Generator().manual_seed(7)).tolist()


def target_of(
    model: PreTrainedModel, attention: str = KERNEL, dtype: str = "float64"
) -> LocalTarget:
    return build_target(model, TargetSettings(dtype, attention, PLAIN))


def config_of(kind: str, **extra: object) -> PreTrainedConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    common = {"vocab_size": VOCAB, "max_position_embeddings": 512, "pad_token_id": None}
    kinds = getattr(transformers, kind)
    config: PreTrainedConfig = kinds(**{**common, **sizes, **heads, **extra})
    return config


FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: config_of("LlamaConfig"),
    "qwen3": lambda: config_of("Qwen3Config", head_dim=8),
    "olmo3 (windows)": lambda: config_of("Olmo3Config", sliding_window=40),
    "gemma3 (windows, scaled embedding)": lambda: config_of(
        "Gemma3TextConfig", head_dim=8, sliding_window=40
    ),
    "gemma2 (soft caps)": lambda: config_of("Gemma2Config", head_dim=8, sliding_window=40),
    "phi3 (fused projections)": lambda: config_of("Phi3Config"),
    "qwen3-moe": lambda: config_of(
        "Qwen3MoeConfig", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "gpt-oss (sinks, windows)": lambda: config_of(
        "GptOssConfig", head_dim=8, sliding_window=40, num_local_experts=4, num_experts_per_tok=2
    ),
    "deepseek-v3 (MLA, dense then sparse)": lambda: config_of(
        "DeepseekV3Config",
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", [KERNEL, SDPA])
def test_right_models_pass(family: str, attention: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES[family](), dtype=torch.float32).eval()
    worst = require_equal_to_eager(model, IDS, lambda piece: target_of(piece, attention, "float32"))
    assert worst < 1e-5


def test_slice_has_one_layer_of_each_kind_and_narrow_windows() -> None:
    config = config_of("Olmo3Config", sliding_window=4096)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    piece = cut(model, IDS[:50])
    assert piece.model.config.layer_types == ["sliding_attention", "full_attention"]
    assert piece.model.base_model.layers[0].self_attn.sliding_window == MAX_WINDOW
    assert piece.model.dtype == torch.float32
    assert [piece.token_ids[i] for i in piece.ids_of(IDS[:50])] == IDS[:50]
    assert model.dtype == torch.bfloat16
    assert model.config.num_hidden_layers == len(model.base_model.layers) == 4
    assert model.base_model.layers[0].self_attn.sliding_window == 4096


# -- broken attention -------------------------------------------------------------------------


class _Broken(SdpaAttention):
    """SDPA with one fault."""

    fault = ""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        params: AttentionParams,
    ) -> torch.Tensor:
        if self.fault == "scaling":
            params = AttentionParams(params.scaling * 1.05, params.window)
        if self.fault == "window":
            params = AttentionParams(params.scaling, params.window + 1 if params.window else 0)
        out = super().attend(layer, query, key, value, params)
        if self.fault == "order" and layer == 1:
            out = out.roll(1, 0)
        return out

    def _mask(self, index: int, window: int) -> torch.Tensor:
        mask = super()._mask(index, window).clone()
        span = self._rows.spans[index]
        if self.fault == "sibling" and not span.is_chain:
            mask[-1, span.committed + 1] ^= True
        if self.fault == "future" and span.count > 1:
            mask[0, span.committed + 1] = True
        if self.fault == "first key" and span.committed > 3:
            mask[:, 0] = False
        return mask


def broken_target(model: PreTrainedModel, fault: str) -> LocalTarget:
    target = target_of(model, SDPA)

    def start(rows: RaggedRows) -> SdpaAttention:
        attention = _Broken(rows, target.runner.device)
        attention.fault = fault
        return attention

    target.backend.start = start  # type: ignore[method-assign]
    return target


@pytest.mark.parametrize("fault", ["scaling", "order", "sibling", "future", "first key"])
def test_broken_attention_is_refused(fault: str) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        require_equal_to_eager(toy_model(), IDS, lambda piece: broken_target(piece, fault))
    assert "failed the self-test" in str(error.value)
    assert "\n" not in str(error.value)


def test_window_wrong_by_one_is_refused() -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        config_of("Olmo3Config", sliding_window=300), dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for layer in model.base_model.layers:
            layer.self_attn.v_proj.weight.mul_(20)  # random layers attend too weakly to show it
            layer.self_attn.o_proj.weight.mul_(20)
    require_equal_to_eager(model, IDS, lambda piece: broken_target(piece, ""))
    with pytest.raises(UnsupportedModelError, match="failed the self-test"):
        require_equal_to_eager(model, IDS, lambda piece: broken_target(piece, "window"))


def test_nan_is_refused() -> None:
    model = toy_model()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.fill_(torch.nan)
    with pytest.raises(UnsupportedModelError):
        require_equal_to_eager(model, IDS, target_of)


def test_crashing_model_code_is_refused() -> None:
    def crash(piece: PreTrainedModel) -> LocalTarget:
        raise RuntimeError("shapes do not fit\nsecond line")

    with pytest.raises(UnsupportedModelError) as error:
        require_equal_to_eager(toy_model(), IDS, crash)
    assert "shapes do not fit" in str(error.value)
    assert "\n" not in str(error.value)


# -- the finished target ----------------------------------------------------------------------


def test_wrong_layer_of_the_finished_target_is_refused() -> None:
    model = toy_model()
    expected = plain_logits(model, IDS)
    assert require_close(target_of(model), IDS, expected) < 1e-6
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(1.1)
    with pytest.raises(UnsupportedModelError, match="failed the self-test"):
        require_close(target_of(model), IDS, expected)


class _RoundedLinear(nn.Module):
    """Row by row, so that it is row-invariant itself, but one rounding more from `from_rows` on."""

    def __init__(self, linear: nn.Linear, from_rows: int) -> None:
        super().__init__()
        self.linear = linear
        self.from_rows = from_rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = torch.cat([self.linear(row[None]) for row in rows]).view(*x.shape[:-1], -1)
        return out if len(rows) < self.from_rows else out * (1 + 2.0**-23)


class _SingleRows(nn.Module):
    """A linear layer that computes each row alone: row-invariant on any machine."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return torch.cat([self.linear(row[None]) for row in rows]).view(*x.shape[:-1], -1)


def invariant_target(odd_from: int | None = None) -> LocalTarget:
    """The toy with row-invariant layers; one layer rounds otherwise from `odd_from` rows on."""
    model = toy_model().to(torch.float32)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, _SingleRows(child))
    if odd_from is not None:
        layer = model.model.layers[0].mlp
        layer.down_proj = _RoundedLinear(layer.down_proj.linear, odd_from)
    return target_of(model, KERNEL, "float32")


def test_row_invariant_target_is_bitwise() -> None:
    assert find_exactness(invariant_target(), IDS).failed == ()


@pytest.mark.parametrize(
    ("odd_from", "check"),
    [
        (2, "chains of 2, 4 and 16"),
        (8, "chain of 8"),
        (16, "tree of 16"),
        (31, "mixed batch"),
        (200, "other prefill chunks"),
    ],
)
def test_row_dependent_layer_is_epsilon(odd_from: int, check: str) -> None:
    found = find_exactness(invariant_target(odd_from), IDS)
    assert found.verdict == exactness.EPSILON
    assert check in found.failed


def test_sdpa_is_not_bitwise_in_bfloat16() -> None:
    target = target_of(toy_model().to(torch.bfloat16), SDPA, "bfloat16")
    assert find_exactness(target, IDS).verdict == exactness.EPSILON


def test_padding_to_two_rows_is_found() -> None:
    """float32 kernels take another path at one row (facts: measured), so one row is never run."""
    settings = TargetSettings("float32", KERNEL, PLAIN)
    odd = invariant_target(2)
    settled, target, is_bitwise = settle_min_rows(settings, odd, IDS)
    assert settled.min_rows == 2
    assert is_bitwise
    assert find_exactness(target, IDS).failed == ()
    settled, _, is_bitwise = settle_min_rows(settings, invariant_target(8), IDS)
    assert settled.min_rows == 1
    assert not is_bitwise


def test_checks_leave_no_cache_behind() -> None:
    target = invariant_target()
    made = []
    original = target.new_cache
    target.new_cache = lambda n: made.append(original(n)) or made[-1]  # type: ignore[method-assign]
    find_exactness(target, IDS, thorough=False)
    assert made
    assert all(cache.num_bytes == 0 for cache in made)
