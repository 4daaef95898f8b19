"""Which points of the target's residual stream a drafter was trained on, in one numbering.

Boundary b is the stream that enters layer b (b = number of layers: leaves the last, before the
norm). Checkpoints number layers in two ways; a mix-up costs no error, only nearly all acceptance
(vLLM #40727, PR 50170), so that what was resolved is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from whiflash.core.errors import ConfigError, ModelError


def from_layer_outputs(layers: Sequence[int]) -> tuple[int, ...]:
    """Ids that name layers whose output was tapped."""
    return tuple(layer + 1 for layer in layers)


def require_boundaries(
    boundaries: Sequence[int], num_layers: int, source: Path | str
) -> tuple[int, ...]:
    """The boundaries as a tuple. Raises ModelError unless they ascend within 1..num_layers."""
    found = tuple(boundaries)
    is_ascending = all(low < high for low, high in pairwise(found))
    if not found or not is_ascending or found[0] < 1 or found[-1] > num_layers:
        raise ModelError(
            f"{source}: boundaries {list(found)} must ascend within 1 to {num_layers}, the "
            "target's layers; give the option boundaries=..., or take the target it was made for"
        )
    return found


def parse_boundaries(text: str) -> tuple[int, ...]:
    """The option's value, like "2+18+33". Raises ConfigError."""
    parts = text.split("+")
    if not all(part.isdigit() for part in parts):
        raise ConfigError(f"boundaries {text!r} must be layer numbers joined by +, like 2+18+33")
    return tuple(int(part) for part in parts)
