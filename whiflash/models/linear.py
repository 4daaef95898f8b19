"""Linear layers with weights packed once for oneDNN, run in row counts that give equal rows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

PACKED_DTYPES = (torch.bfloat16, torch.float32)
# Beyond this many rows a call is bound by arithmetic, not by reading the weight, so that
# splitting costs nothing (measured: 256 rows in one call or in four take the same time).
MAX_CALL_ROWS = 64
MIN_ROWS = (1, 2, 4, 8, 16)
# Padding: up to how many rows, how often each is timed, and what is as good as the best.
MAX_PADDED_ROWS = 6
TIMED_TURNS = 4
WORTHWHILE = 1.03
CHECKED_COUNTS = (*range(1, 18), 23, 24, 31, 32, 33, 47, 48, 63, 64)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Row counts of one call, min_rows..max_rows, in which a row's result is the same bits."""

    min_rows: int = 1
    max_rows: int = MAX_CALL_ROWS

    def calls(self, num_rows: int) -> list[int]:
        """Sizes of the calls for `num_rows` rows: as few and as even as can be. The last may be
        below min_rows, and is then padded, where there are fewer rows than that."""
        num_calls = -(-num_rows // self.max_rows)
        small, extra = divmod(num_rows, num_calls)
        return [small + 1] * extra + [small] * (num_calls - extra)


class PackedLinear(nn.Module):
    """`nn.Linear` over a packed weight. [..., in] -> [..., out]."""

    def __init__(self, linear: nn.Linear, plan: RowPlan | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.plan = plan or RowPlan()
        self.packed = _pack(linear.weight.detach())
        self.bias = linear.bias

    @property
    def weight_bytes(self) -> int:
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.in_features * self.out_features * self.packed.dtype.itemsize + bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        num_rows = x.numel() // self.in_features
        plan = self.plan
        if plan.min_rows <= num_rows <= plan.max_rows:
            return self.call(x)
        if num_rows == 0:
            return x.new_empty(*x.shape[:-1], self.out_features)
        rows = x.reshape(num_rows, self.in_features)
        out = torch.cat([self._padded(part) for part in rows.split(plan.calls(num_rows))])
        return out.view(*x.shape[:-1], self.out_features)

    def _padded(self, rows: torch.Tensor) -> torch.Tensor:
        missing = self.plan.min_rows - rows.shape[0]
        if missing <= 0:
            return self.call(rows)
        return self.call(functional.pad(rows, (0, 0, 0, missing)))[: rows.shape[0]]

    def call(self, x: torch.Tensor) -> torch.Tensor:
        """One call of the kernel, whatever the plan says."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self.packed, self.bias, "none", [], ""
        )
        return out

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.plan}"


def _pack(weight: torch.Tensor) -> torch.Tensor:
    # The hint of rows only chooses a layout; one copy serves every row count (facts: measured).
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
    return packed


def can_pack(model: PreTrainedModel) -> bool:
    """Whether this machine packs weights of the model's dtype."""
    if model.device.type != "cpu" or model.dtype not in PACKED_DTYPES:
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    is_bfloat16 = model.dtype == torch.bfloat16
    return not is_bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack_linears(model: PreTrainedModel) -> list[PackedLinear]:
    """Swap every plain `nn.Linear` of the model's dtype, the head included. The dense weight is
    dropped, but for one that is the tied embedding."""
    packed: list[PackedLinear] = []
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype == model.dtype:
                packed.append(PackedLinear(child))
                setattr(parent, name, packed[-1])
    return packed


def plan_rows(linears: Sequence[PackedLinear]) -> RowPlan | None:
    """Find, for each distinct shape, the row counts in which rows are equal bits on this machine
    with its present number of threads, and set each layer's plan. Returns the plan that holds
    for all, or None (plans as they were) if a shape has none."""
    plans: dict[tuple[int, int, bool], RowPlan] = {}
    for linear in linears:
        shape = linear.in_features, linear.out_features, linear.bias is not None
        if shape not in plans:
            found = find_row_plan(*shape, linear.packed.dtype)
            if found is None:
                return None
            plans[shape] = found
    for linear in linears:
        linear.plan = plans[linear.in_features, linear.out_features, linear.bias is not None]
    lowest = max((plan.min_rows for plan in plans.values()), default=1)
    highest = min((plan.max_rows for plan in plans.values()), default=MAX_CALL_ROWS)
    return RowPlan(lowest, highest)


def cheapest_rows(linears: Sequence[PackedLinear]) -> int:
    """The row count, allowed by all plans, at which one pass through the layers is cheapest.
    Small counts take other kernels, and not always better ones (measured on a CPU without AMX,
    bfloat16: 24.7 ms for 2 rows, 18.0 for 5), so that padding a single row can pay."""
    lowest = max((linear.plan.min_rows for linear in linears), default=1)
    counts = range(lowest, max(lowest, MAX_PADDED_ROWS) + 1)
    times = dict.fromkeys(counts, math.inf)
    for _ in range(TIMED_TURNS):
        for count in counts:
            times[count] = min(times[count], _time_pass(linears, count))
    limit = min(times.values()) * WORTHWHILE
    return next(count for count in counts if times[count] <= limit)


def _time_pass(linears: Sequence[PackedLinear], num_rows: int) -> float:
    """Seconds for each layer once, so that weights come from memory as in a forward."""
    rows = {
        linear.in_features: torch.zeros(num_rows, linear.in_features, dtype=linear.packed.dtype)
        for linear in linears
    }
    start = time.perf_counter()
    for linear in linears:
        linear.call(rows[linear.in_features])
    return time.perf_counter() - start


def find_row_plan(
    in_features: int, out_features: int, has_bias: bool, dtype: torch.dtype
) -> RowPlan | None:
    """The widest class of row counts in which every row, first to last, equals the same row in
    calls of the lowest count; None where no class reaches twice its lowest count."""
    generator = torch.Generator().manual_seed(0)
    linear = _sensitive_linear(in_features, out_features, has_bias, dtype, generator)
    half = torch.randn(CHECKED_COUNTS[-1], -(-in_features // 2), generator=generator)
    rows = torch.cat([half, half], dim=1)[:, :in_features].to(dtype)
    best: RowPlan | None = None
    for min_rows in MIN_ROWS:
        plan = RowPlan(min_rows, _widest(linear, rows, min_rows))
        if plan.max_rows >= 2 * min_rows and (best is None or plan.max_rows > best.max_rows):
            best = plan
        if best is not None and best.max_rows == CHECKED_COUNTS[-1]:
            break
    return best


def _sensitive_linear(
    in_features: int, out_features: int, has_bias: bool, dtype: torch.dtype,
    generator: torch.Generator,
) -> PackedLinear:  # fmt: skip
    """A layer whose products cancel, so that what is left is rounding: another order of sums
    shows in nearly every number (with common weights, bfloat16 hides all but 1 in 10,000)."""
    dense = nn.Linear(in_features, out_features, has_bias, dtype=dtype)
    half = torch.randn(out_features, -(-in_features // 2), generator=generator).to(dtype)
    with torch.no_grad():
        dense.weight.copy_(torch.cat([half, -half], dim=1)[:, :in_features])
    return PackedLinear(dense)


def _widest(linear: PackedLinear, rows: torch.Tensor, min_rows: int) -> int:
    expected = torch.cat([linear.call(part) for part in rows.split(min_rows)])
    widest = min_rows
    for count in (c for c in CHECKED_COUNTS if c > min_rows):
        first = torch.equal(linear.call(rows[:count]), expected[:count])
        if not first or not torch.equal(linear.call(rows[-count:]), expected[-count:]):
            break
        widest = count
    return widest
