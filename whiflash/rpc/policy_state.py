"""The state of a policy as bytes: what a version is, on either side of the link.

Pickle, read with a list of what may be made: our own routing classes, numpy arrays, containers.
Costs stay behind: each end puts its own object in their place.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from whiflash.core.errors import ConfigError
from whiflash.core.protocols import Policy
from whiflash.routing.costs import CostModel, Costs

_COSTS = "costs"
_MODULES = ("whiflash.routing.", "whiflash.core.")
_NAMES = {
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
}


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        return _COSTS if isinstance(value, CostModel) else None


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, costs: Costs) -> None:
        super().__init__(io.BytesIO(data))
        self._costs = costs

    def persistent_load(self, name: str) -> Costs:
        if name != _COSTS:
            raise pickle.UnpicklingError(f"unknown object {name!r}")
        return self._costs

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(_MODULES) or (module, name) in _NAMES:
            found = super().find_class(module, name)
            if (module, name) in _NAMES or isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} may not be part of a policy's state")


def dump_policy(policy: Policy) -> bytes:
    """Raises ConfigError for a policy whose state cannot travel."""
    out = io.BytesIO()
    try:
        _Writer(out, protocol=5).dump(policy)
        return out.getvalue()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"policy {policy.name!r} cannot be sent to verifiers ({error}); let it run in them"
        ) from None


def load_policy(data: bytes, costs: Costs) -> Policy:
    """A copy of its own, on `costs`. Raises ValueError on anything that is no policy's state."""
    try:
        policy: Policy = _Reader(data, costs).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError) as error:
        raise ValueError(f"this is no state of a policy: {error}") from None
    return policy
