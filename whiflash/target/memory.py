"""Memory of the device that a model is to live on, and whether its weights fit."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from whiflash.core.errors import UnsupportedModelError

_GB = 1e9
# Activations, packed copies made layer by layer, and a first cache: measured need is far below.
WORKING_ROOM = 0.1
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes(device: str) -> int:
    """Free memory of `device` now: of the GPU, or of the machine within its container's limit."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    free = int(psutil.virtual_memory().available)
    limit = _container_room()
    return free if limit is None else min(free, limit)


def _container_room() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        # The page cache counts as used but is given back on demand.
        return None if limit == "max" else int(limit) - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return None


def require_weights_fit(
    num_parameters: int, dtype: torch.dtype, device: str, free_bytes: int
) -> None:
    """Raises UnsupportedModelError, with the arithmetic, if the weights do not fit one device."""
    weight_bytes = num_parameters * dtype.itemsize
    needed = weight_bytes * (1 + WORKING_ROOM)
    if needed > free_bytes:
        name = str(dtype).removeprefix("torch.")
        raise UnsupportedModelError(
            f"weights do not fit {device}: {num_parameters / 1e9:.2f} billion parameters x "
            f"{dtype.itemsize} bytes ({name}) = {weight_bytes / _GB:.2f} GB, with "
            f"{WORKING_ROOM:.0%} working room {needed / _GB:.2f} GB, and {free_bytes / _GB:.2f} GB "
            "are free; take a smaller model or dtype (a model split over devices is not supported)"
        )
