"""Packed linears: the same function, called in the row counts of the plan only."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from whiflash.models import linear as linear_module
from whiflash.models.linear import (
    CHECKED_COUNTS,
    PackedLinear,
    RowPlan,
    can_pack,
    cheapest_rows,
    find_row_plan,
    pack_linears,
)

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def dense(request: pytest.FixtureRequest) -> nn.Linear:
    torch.manual_seed(0)
    if not can_pack(LlamaForCausalLM(CONFIG).to(request.param)):
        pytest.skip(f"oneDNN cannot pack {request.param} weights on this machine")
    return nn.Linear(40, 24, dtype=request.param).requires_grad_(False)


class _Counting(PackedLinear):
    """Notes the rows of every call."""

    def __init__(self, linear: nn.Linear, plan: RowPlan) -> None:
        super().__init__(linear, plan)
        self.sizes: list[int] = []

    def call(self, x: torch.Tensor) -> torch.Tensor:
        self.sizes.append(x.numel() // self.in_features)
        return super().call(x)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 8, 9, 31])
@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_any_shape_is_the_dense_function(
    dense: nn.Linear, rows: int, lead: tuple[int, ...]
) -> None:
    packed = _Counting(dense, RowPlan(min_rows=2, max_rows=8))
    x = torch.randn(*lead, rows, 40).to(dense.weight.dtype)
    out = packed(x)
    assert out.shape == (*lead, rows, 24)
    assert out.dtype == dense.weight.dtype
    tolerance = 1e-5 if out.dtype == torch.float32 else 3e-2
    assert torch.allclose(out, dense(x), atol=tolerance, rtol=tolerance)
    assert all(2 <= size <= 8 for size in packed.sizes)


def test_a_kernel_that_differs_for_few_and_many_rows_gets_a_plan_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One row is computed in another order, and so is anything above 24 rows."""

    def call(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        weight, order = self.dense, slice(None)
        if not 2 <= x.shape[0] <= 24:
            order = torch.arange(self.in_features).flip(0)
        out = torch.zeros(x.shape[0], self.out_features)
        for k in torch.arange(self.in_features)[order]:
            out += x[:, k : k + 1] * weight[:, k]
        return out

    def keep(self: PackedLinear, linear: nn.Linear, plan: RowPlan | None = None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dense = linear.weight.detach()

    monkeypatch.setattr(linear_module.PackedLinear, "__init__", keep)
    monkeypatch.setattr(linear_module.PackedLinear, "call", call)
    assert find_row_plan(64, 16, False, torch.float32) == RowPlan(2, 24)


def test_no_plan_without_a_class_of_equal_rows(
    dense: nn.Linear, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = PackedLinear.call

    def call(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        return original(self, x) * (1 + x.shape[0] / 64)

    monkeypatch.setattr(linear_module.PackedLinear, "call", call)
    assert find_row_plan(40, 24, True, dense.weight.dtype) is None


def test_real_shapes_have_a_plan_that_prefill_can_use(dense: nn.Linear) -> None:
    plan = find_row_plan(576, 192, False, dense.weight.dtype)
    assert plan is not None
    assert plan.max_rows == CHECKED_COUNTS[-1]


def test_the_head_is_packed_and_the_tied_embedding_stays(dense: nn.Linear) -> None:
    model = LlamaForCausalLM(CONFIG).to(dense.weight.dtype).eval()
    ids = torch.arange(12)[None]
    with torch.inference_mode():
        expected = model(ids).logits
        packed = pack_linears(model)
        found = model(ids).logits
    assert len(packed) == 2 * 7 + 1
    assert type(model.lm_head) is PackedLinear
    assert model.model.embed_tokens.weight.shape == (64, 32)
    assert not [name for name, _ in model.named_parameters() if "proj" in name or "head" in name]
    assert torch.allclose(found, expected, atol=1e-5 if dense.weight.dtype.itemsize == 4 else 0.02)


def test_padding_is_allowed_by_the_plans(dense: nn.Linear) -> None:
    layers = [PackedLinear(dense, RowPlan(3, 64)), PackedLinear(dense)]
    assert 3 <= cheapest_rows(layers) <= 6
