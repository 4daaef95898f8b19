"""Taps: residual streams caught on their way through the target, and where they are kept fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from whiflash.core.errors import UnsupportedModelError
from whiflash.models.slab import BLOCK_TOKENS

Fuse = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class TapSource:
    """A drafter's claim on the target: `fuse` turns the taps at `boundaries`, concatenated in
    order ([n, boundaries * h]), into its fused taps ([n, width], `dtype`)."""

    weight_hash: str
    boundaries: tuple[int, ...]
    width: int
    fuse: Fuse
    dtype: torch.dtype

    def plane(self, num_tokens: int, device: torch.device, first: int = 0) -> TapPlane:
        """An empty plane with room for `num_tokens`, which keeps taps from position `first` on."""
        return TapPlane(self.width, self.dtype, device, num_tokens, first)

    def num_bytes(self, num_slots: int) -> int:
        """Memory of a plane of that many slots."""
        return num_slots * self.width * self.dtype.itemsize


class TapPlane:
    """Fused taps of one drafter and sequence, slot by slot beside the KV; a `models.slab.Slab`
    that grows, moves and is copied with it.

    first: taps of earlier positions were never made: the drafter came later.
    """

    def __init__(
        self, width: int, dtype: torch.dtype, device: torch.device, num_tokens: int, first: int = 0
    ) -> None:
        self.first = first
        self._taps = torch.zeros((_slots(num_tokens), width), dtype=dtype, device=device)

    @property
    def capacity(self) -> int:
        return len(self._taps)

    @property
    def num_bytes(self) -> int:
        return self._taps.nbytes

    def grow(self, num_tokens: int) -> None:
        if num_tokens > self.capacity:
            larger = self._taps.new_zeros((_slots(num_tokens), self._taps.shape[1]))
            larger[: self.capacity] = self._taps
            self._taps = larger

    def move(self, sources: Sequence[int], first: int) -> None:
        index = torch.tensor(sources, device=self._taps.device)
        self._taps[first : first + len(sources)] = self._taps[index]

    def clone(self, length: int) -> TapPlane:
        twin = TapPlane(self._taps.shape[1], self._taps.dtype, self._taps.device, length)
        twin.first = min(self.first, length)
        twin._taps[:length] = self._taps[:length]
        return twin

    def truncate(self, length: int) -> None:
        """Positions from `length` on will be written anew."""
        self.first = min(self.first, length)

    def release(self) -> None:
        self._taps = self._taps[:0].clone()

    def write(self, first: int, fused: torch.Tensor) -> None:
        """Fused taps of slots first, first + 1, ...: [n, width]."""
        self._taps[first : first + len(fused)] = fused

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """[stop - start, width], a view: use it before the next forward."""
        return self._taps[start:stop]


def _slots(num_tokens: int) -> int:
    """As the KV slab counts them, so that one reservation covers both."""
    blocks = -(-max(num_tokens, 1) // BLOCK_TOKENS)
    return (1 << (blocks - 1).bit_length()) * BLOCK_TOKENS


class TapCapture:
    """Residual streams of one forward at the asked boundaries: boundary b enters layer b, the
    last one leaves the last layer, before the norm (design.md 2)."""

    def __init__(self, boundaries: Sequence[int]) -> None:
        self._wanted = frozenset(boundaries)
        self._taken: dict[int, torch.Tensor] = {}

    def enter(self, boundary: int, hidden: torch.Tensor) -> None:
        """`hidden`: [..., T, h] at that boundary; kept if it is wanted."""
        if boundary in self._wanted:
            self._taken[boundary] = hidden.reshape(-1, hidden.shape[-1])

    def at(self, boundaries: Sequence[int]) -> torch.Tensor:
        """[T, boundaries * h]."""
        return torch.cat([self._taken[boundary] for boundary in boundaries], dim=-1)

    @contextmanager
    def hooked(self, inner: nn.Module) -> Iterator[None]:
        """Catches the streams of a model that runs its own forward."""
        with ExitStack() as hooks:
            for boundary in self._wanted:
                module = _module_behind(inner, boundary)
                handle = module.register_forward_pre_hook(self._hook(boundary), with_kwargs=True)
                hooks.callback(handle.remove)
            yield

    def _hook(self, boundary: int) -> Callable[[nn.Module, Any, dict[str, Any]], None]:
        def catch(_module: nn.Module, args: Any, options: dict[str, Any]) -> None:
            self.enter(boundary, args[0] if args else options["hidden_states"])

        return catch


def _module_behind(inner: nn.Module, boundary: int) -> nn.Module:
    """The module that the stream enters at `boundary`."""
    layers = inner.get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    if boundary < len(layers):
        return layers[boundary]
    norm = getattr(inner, "norm", None)
    if not isinstance(norm, nn.Module):
        raise UnsupportedModelError(
            f"{type(inner).__name__} has no final `norm`, so the stream that leaves its last layer "
            f"(boundary {boundary}) cannot be caught; take a drafter that reads earlier layers"
        )
    return norm
