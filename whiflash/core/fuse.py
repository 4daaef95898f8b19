"""What makes a drafter's fused taps, as tensors that can travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, eq=False)
class FuseWeights:
    """output_norm(fc(input norms(taps))); all weights of one dtype, in which it is computed.

    fc: [width, boundaries * target width]. input_norm: over all taps of a position together;
    tap_norms: one per boundary, of target width. output_norm: [width]. Norms are RMS norms.
    """

    fc: torch.Tensor
    eps: float
    input_norm: torch.Tensor | None = None
    tap_norms: tuple[torch.Tensor, ...] = ()
    output_norm: torch.Tensor | None = None


@runtime_checkable
class Fusing(Protocol):
    """A drafter whose fused taps may be made elsewhere."""

    def fuse_weights(self) -> FuseWeights:
        """What its `fuse` is made of."""
