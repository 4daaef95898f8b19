"""The target's KV cache of one sequence: committed positions, then the last forward's scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from whiflash.models.slab import Slab
from whiflash.models.taps import TapPlane, TapSource

Parents = npt.NDArray[np.int32]


class SlabCache:
    """Implements `core.protocols.SequenceCache` over one slab, and a plane of fused taps per
    drafter that reads them (by weight hash).

    Position p < length lies in slot p; scratch row i of the last forward in slot length + i, so
    that committing a chain moves nothing.
    """

    def __init__(self, slab: Slab, planes: Mapping[str, TapPlane] | None = None) -> None:
        self._slab: Slab | None = slab
        self._planes = dict(planes or {})
        self._length = 0
        self._scratch_parents: Parents = np.zeros(0, np.int32)

    @property
    def length(self) -> int:
        return self._length

    @property
    def num_bytes(self) -> int:
        return sum(store.num_bytes for store in self._stores)

    @property
    def _stores(self) -> tuple[Slab, ...]:
        """What grows, moves and ends together; nothing after `release`."""
        return () if self._slab is None else (self._slab, *self._planes.values())

    @property
    def num_scratch(self) -> int:
        """Rows of the last forward that wait for `commit`."""
        return len(self._scratch_parents)

    @property
    def slab(self) -> Slab:
        """The storage. Raises ValueError after `release`."""
        if self._slab is None:
            raise ValueError("the cache was released; take a new one with Target.new_cache")
        return self._slab

    def reserve(self, num_rows: int) -> None:
        """Drop scratch and make room for the rows of the next forward."""
        self._scratch_parents = np.zeros(0, np.int32)
        for store in (self.slab, *self._planes.values()):
            store.grow(self._length + num_rows)

    def follow(self, sources: Mapping[str, TapSource], device: torch.device) -> None:
        """Before a forward: one plane per source. A new one has taps from here on only, what no
        source writes any more is given up."""
        if self._planes.keys() != sources.keys():
            room, first = self.slab.capacity, self._length
            self._planes = {
                name: self._planes.get(name) or source.plane(room, device, first)
                for name, source in sources.items()
            }

    def write_taps(self, weight_hash: str, fused: torch.Tensor) -> None:
        """Fused taps of the scratch rows, [num rows, width], between `reserve` and `commit`."""
        self._planes[weight_hash].write(self._length, fused)

    def fused_taps(self, weight_hash: str, start: int, stop: int) -> torch.Tensor:
        if not 0 <= start <= stop <= self._length:
            raise ValueError(f"positions {start} to {stop} of {self._length} are not committed")
        if weight_hash not in self._planes:
            raise ValueError(f"no drafter with weights {weight_hash} was attached to the target")
        if start < stop and start < self.taps_from(weight_hash):
            raise ValueError(f"no taps of {weight_hash} are kept for position {start}")
        return self._planes[weight_hash].rows(start, stop)

    def taps_from(self, weight_hash: str) -> int:
        plane = self._planes.get(weight_hash)
        return self._length if plane is None else min(plane.first, self._length)

    def wrote(self, parents: Parents) -> None:
        """A forward filled the slots behind `length`; row i hangs below row parents[i]."""
        self._scratch_parents = parents

    def commit(self, rows: Sequence[int]) -> None:
        path = [int(row) for row in rows]
        self._check_path(path)
        first = self._length
        moved = next((i for i, row in enumerate(path) if row != i), len(path))
        if moved < len(path):
            for store in self._stores:
                store.move([first + row for row in path[moved:]], first + moved)
        self._length += len(path)
        self._scratch_parents = np.zeros(0, np.int32)

    def _check_path(self, path: list[int]) -> None:
        above = -1
        for row in path:
            if not 0 <= row < self.num_scratch:
                raise ValueError(f"row {row} was not written: {self.num_scratch} scratch rows")
            if self._scratch_parents[row] != above:
                raise ValueError(f"row {row} does not follow row {above}: {path} is not a path")
            above = row

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot truncate {self._length} positions to {length}")
        for plane in self._planes.values():
            plane.truncate(length)
        self._length = length
        self._scratch_parents = np.zeros(0, np.int32)

    def fork(self, length: int) -> SlabCache:
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot fork {length} of {self._length} positions")
        planes = {name: plane.clone(length) for name, plane in self._planes.items()}
        twin = SlabCache(self.slab.clone(length), planes)
        twin._length = length
        return twin

    def release(self) -> None:
        for store in self._stores:
            store.release()
        self._slab = None
        self._length = 0
        self._scratch_parents = np.zeros(0, np.int32)

    def check_integrity(self) -> None:
        if self._slab is None:
            assert (self._length, self.num_scratch) == (0, 0)
            return
        assert self._length >= 0
        for store in self._stores:
            assert self._length + self.num_scratch <= store.capacity
        assert (self._scratch_parents < np.arange(self.num_scratch)).all()
        assert (self._scratch_parents >= -1).all()
