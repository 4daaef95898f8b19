"""WhiFlash's neural router: a GELU MLP on the target's final hidden state (arXiv 2606.07710)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, eq=False)
class NeuralRouter:
    """dAL = fc2(GELU(fc1(hidden))): two layers (WhiFlash's model cards), exact GELU.

    positive, negative: dAL is the accepted length of `positive` minus that of `negative`.
    Tensors: fc1.weight [width, h], fc1.bias [width], fc2.weight [1, width], fc2.bias [1].
    """

    positive: str
    negative: str
    tensors: dict[str, torch.Tensor]

    @property
    def hidden_size(self) -> int:
        return int(self.tensors["fc1.weight"].shape[1])

    @property
    def width(self) -> int:
        return int(self.tensors["fc1.weight"].shape[0])

    def predict(self, hidden: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32 [n, h] -> dAL, float32 [n]."""
        import torch
        from torch.nn.functional import gelu, linear

        t = self.tensors
        with torch.inference_mode():
            inner = gelu(linear(torch.from_numpy(hidden), t["fc1.weight"], t["fc1.bias"]))
            gains: npt.NDArray[np.float32] = linear(inner, t["fc2.weight"], t["fc2.bias"])[
                :, 0
            ].numpy()
        return gains
