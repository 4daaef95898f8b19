"""The file of a neural router: a GELU MLP on the target's final hidden state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    import torch

FORMAT = "whiflash-router-1"
TENSORS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
KEYS = ("format", "target", "positive", "negative")


@dataclass(frozen=True, slots=True)
class RouterFile:
    """dAL = fc2(GELU(fc1(hidden))): two layers (WhiFlash's model cards), exact GELU.

    positive, negative: dAL is the accepted length of `positive` minus that of `negative`.
    target: fingerprint of the target whose hidden state it was trained on.
    Tensors: fc1.weight [width, h], fc1.bias [width], fc2.weight [1, width], fc2.bias [1].
    """

    positive: str
    negative: str
    target: str
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

    def write(self, path: Path) -> None:
        """Raises OSError."""
        from safetensors.torch import save_file

        metadata = dict(zip(KEYS, (FORMAT, self.target, self.positive, self.negative), strict=True))
        save_file(self.tensors, path, metadata)

    @classmethod
    def read(cls, path: Path) -> RouterFile:
        """Raises ConfigError unless the file holds exactly what it should."""
        metadata, tensors = _load(path)
        if metadata.get("format") != FORMAT:
            raise ConfigError(f"{path} is no {FORMAT} file (metadata `format`)")
        missing = [key for key in KEYS if not metadata.get(key)]
        if missing:
            raise ConfigError(f"the router file {path} lacks metadata: {', '.join(missing)}")
        _check_tensors(path, tensors)
        return cls(metadata["positive"], metadata["negative"], metadata["target"],
                   {name: tensor.float() for name, tensor in tensors.items()})  # fmt: skip


def _load(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ConfigError(f"the router file {path} does not exist; check file=")
    try:
        with safe_open(path, "pt") as opened:
            metadata = dict(opened.metadata() or {})
            return metadata, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"the router file {path} is no safetensors file ({error})") from None


def _check_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    if set(tensors) != set(TENSORS):
        odd = ", ".join(sorted(set(tensors) ^ set(TENSORS)))
        raise ConfigError(f"the router file {path} lacks tensors or has too many: {odd}")
    shape = tuple(tensors["fc1.weight"].shape)
    width = shape[0] if len(shape) == 2 else -1
    wanted = {"fc1.weight": shape, "fc1.bias": (width,), "fc2.weight": (1, width), "fc2.bias": (1,)}
    for name, size in wanted.items():
        if tuple(tensors[name].shape) != size or width < 1:
            raise ConfigError(f"the router file {path}: {name} has shape "
                              f"{tuple(tensors[name].shape)}, expected {size}")  # fmt: skip
        if not bool(tensors[name].isfinite().all()):
            raise ConfigError(f"the router file {path}: {name} holds values that are no numbers")
