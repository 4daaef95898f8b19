"""How long OpenMP's workers stay awake, for processes that compute by turns on the same cores."""

from __future__ import annotations

from typing import Final

BRIEF_SPINS: Final = ("GOMP_SPINCOUNT", "20000")
"""Set before torch is imported; what is set already holds. By default a worker spins for 6 ms after
each product on a core that the drafter (or the verifier) needs just then; this is half a
millisecond, which bridges the gaps within a forward."""
