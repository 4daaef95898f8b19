"""Calls between modules without the machinery that training needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import MethodType

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def call_children_directly(root: nn.Module) -> Callable[[], None]:
    """Below `root`, `self.child(x)` calls the child's bare `forward`: no hooks, no lookup among
    parameters and buffers, no argument decorators (together 2.5 ms of a 25 ms forward, measured).

    The modules stay where they are; their attributes are no longer reached through the parent's
    name, so the caller must check the result. Returns what undoes it.
    """
    placed: list[tuple[nn.Module, str]] = []
    for parent in root.modules():
        if isinstance(parent, _CONTAINERS):
            continue
        for name, child in parent.named_children():
            if not isinstance(child, _CONTAINERS):
                vars(parent)[name] = MethodType(inspect.unwrap(type(child).forward), child)
                placed.append((parent, name))

    def undo() -> None:
        for parent, name in placed:
            vars(parent).pop(name, None)

    return undo
