"""Draft K/V of one sequence: positions kept across rounds, and scratch behind them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_FIRST_POSITIONS = 64


@dataclass(frozen=True, slots=True)
class DraftCacheShape:
    """What one position holds."""

    num_layers: int
    num_heads: int
    width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_position(self) -> int:
        return 2 * self.num_layers * self.num_heads * self.width * self.dtype.itemsize

    def capacity(self, num_positions: int) -> int:
        """Positions that a cache has room for once `num_positions` were asked for: none at first,
        then a power of two, so that it does not depend on how they were asked for."""
        if num_positions == 0:
            return 0
        return max(_FIRST_POSITIONS, 1 << (num_positions - 1).bit_length())

    def num_bytes(self, num_positions: int) -> int:
        """Memory of a cache that was asked for so many at most."""
        return self.capacity(num_positions) * self.bytes_per_position


class DraftCache:
    """K (after head norm and rope) and V of positions [start, end), per layer [heads, n, width].

    Rows are written at `end + offset` and become kept positions by `keep`; what is behind `end`
    otherwise is scratch that the next write may overwrite. Grown by doubling.
    """

    def __init__(self, shape: DraftCacheShape, start: int = 0) -> None:
        self.shape = shape
        self.start = start
        self._length = 0
        self._keys, self._values = self._new(0)

    def _new(self, capacity: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self.shape
        size = (shape.num_layers, shape.num_heads, capacity, shape.width)
        with torch.inference_mode(False):  # inference tensors could not be written outside of it
            keys, values = (
                torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in range(2)
            )
        return keys, values

    @property
    def length(self) -> int:
        """Kept positions."""
        return self._length

    @property
    def end(self) -> int:
        """First position that is not kept."""
        return self.start + self._length

    @property
    def num_bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def reserve(self, num_rows: int) -> None:
        """Room for so many rows behind the kept positions."""
        needed, capacity = self._length + num_rows, self._keys.shape[2]
        if needed <= capacity:
            return
        old = self._keys, self._values
        self._keys, self._values = self._new(self.shape.capacity(needed))
        for new, kept in zip((self._keys, self._values), old, strict=True):
            new[:, :, :capacity] = kept

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, offset: int = 0) -> None:
        """Lay [n, heads, width] in `offset` rows behind the kept positions (after `reserve`)."""
        first = self._length + offset
        rows = slice(first, first + keys.shape[0])
        self._keys[layer, :, rows] = keys.transpose(0, 1)
        self._values[layer, :, rows] = values.transpose(0, 1)

    def read(self, layer: int, num_scratch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of K and V, [heads, kept + num_scratch, width]."""
        end = self._length + num_scratch
        return self._keys[layer, :, :end], self._values[layer, :, :end]

    def keep(self, num_rows: int) -> None:
        """The next `num_rows` rows, written in all layers, become kept positions."""
        if self._length + num_rows > self._keys.shape[2]:
            raise ValueError(f"{num_rows} rows were never written")
        self._length += num_rows

    def crop(self, end: int) -> None:
        """Forget positions from `end` on; all, if it lies before `start`."""
        self._length = max(min(self._length, end - self.start), 0)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        assert 0 <= self._length <= self._keys.shape[2]
        assert self.start >= 0
