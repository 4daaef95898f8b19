"""Direct calls between modules: the same results, and modules that are still there."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from whiflash.models.direct import call_children_directly


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.linear(x) * scale


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child()
        self.several = nn.ModuleList([Child()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.several[0](self.child(x, scale=2.0))


@pytest.fixture
def parent() -> Parent:
    torch.manual_seed(0)
    return Parent()


def test_results_are_the_same_and_hooks_are_not_run(parent: Parent) -> None:
    x = torch.randn(2, 3)
    expected = parent(x)
    calls: list[int] = []
    parent.child.register_forward_hook(lambda *_: calls.append(1))
    undo = call_children_directly(parent)
    assert torch.equal(parent(x), expected)
    assert calls == []
    undo()
    assert torch.equal(parent(x), expected)
    assert calls == [1]


def test_attributes_are_reached_and_set_through_the_parent(parent: Parent) -> None:
    call_children_directly(parent)
    assert parent.child.linear.weight is dict(parent.named_parameters())["child.linear.weight"]
    parent.child.linear = nn.Identity()
    x = torch.randn(2, 3)
    assert torch.equal(parent.child(x), x)
    with pytest.raises(AttributeError):
        _ = parent.child.missing


def test_a_copy_calls_its_own_children(parent: Parent) -> None:
    call_children_directly(parent)
    twin = copy.deepcopy(parent)
    with torch.no_grad():
        twin.child.linear.weight.zero_()
        twin.child.linear.bias.zero_()
    x = torch.randn(2, 3)
    assert torch.equal(twin.child(x), torch.zeros(2, 3))
    assert not torch.equal(parent.child(x), torch.zeros(2, 3))
