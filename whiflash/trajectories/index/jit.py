"""The kernels' compiler setting: numba with a disk cache that an edit of any kernel file renews.

Numba stamps a cached function with the file that it stands in, but not with those that it takes
functions and constants from, and would go on running the old layout after an edit of `layout.py`.
So the name that the cache files go by carries a digest of all kernel files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba import njit

# The kernels' types are numba's business: int32, int64 or float arrays and their numbers.
Array = Any
Int = Any
Float = Any

_KERNEL_FILES = (
    "edges.py",
    "fringe.py",
    "jit.py",
    "kernels.py",
    "layout.py",
    "live_search.py",
    "search.py",
    "sealed_search.py",
    "../sealed/fences.py",
    "../sealed/grams.py",
    "../sealed/text.py",
)
_SOURCES = [Path(__file__).parent / name for name in _KERNEL_FILES]
SOURCES_DIGEST = hashlib.sha256(b"".join(file.read_bytes() for file in _SOURCES)).hexdigest()[:12]


def jit(function: Any) -> Any:
    """Compiles at the first call; the GIL is not held while it runs. Indices are not checked."""
    function.__qualname__ = f"{function.__qualname__}_{SOURCES_DIGEST}"
    return njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
