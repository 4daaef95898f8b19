"""A name for a drafter's weights, under which its fused taps are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

_DIGITS = 16


def hash_tensors(tensors: Mapping[str, torch.Tensor], *facts: object) -> str:
    """32 hex digits over names, types, shapes and all bytes of `tensors`, and over `facts` (what
    else a fused tap depends on: boundaries, dtype, norms), so that equal names mean equal taps."""
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=_DIGITS)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
