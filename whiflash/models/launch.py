"""Compiles the attention kernel for a stored type and runs it on torch's own threads."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import cfunc, types

from whiflash.models import kernel, kernel_layout, tiles, vectors

_KINDS: dict[torch.dtype, tuple[Any, Any]] = {
    torch.bfloat16: (np.uint16(0), np.float32(0)),
    torch.float32: (np.float32(0), np.float32(0)),
    torch.float64: (np.float64(0), np.float64(0)),
}
KERNEL_DTYPES = tuple(_KINDS)
_Parallel = Callable[[int, int, int, int], None]


@functools.cache
def compiled_kernel(dtype: torch.dtype) -> Any:
    """The kernel as a C function of the argument array's address. Compiled once per machine:
    numba keeps it beside the module, or in the user's cache folder."""
    kind, zero = _KINDS[dtype]
    source = "".join(
        inspect.getsource(module) for module in (kernel, kernel_layout, tiles, vectors)
    )
    # numba's cache looks at the file of the entry alone; the stamp, part of its key, covers all.
    stamp = hashlib.sha256(source.encode()).hexdigest()
    run = kernel.entry(kind, zero, stamp)
    signature = types.void(types.int64)
    try:
        return cfunc(signature, cache=True, error_model="numpy")(run)
    except RuntimeError:  # no folder that numba may write to: compile at every start
        return cfunc(signature, error_model="numpy")(run)


@functools.cache
def _torch_parallel() -> _Parallel | None:
    """`GOMP_parallel` of the OpenMP runtime that torch runs on, where it has one. A second pool
    of threads would fight with torch's, which spin for a while after each operator."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        library = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        function = library.GOMP_parallel
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    parallel: _Parallel = function
    return parallel


class Launcher:
    """Runs the kernel of one stored type. The GIL is not held meanwhile."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._compiled = compiled_kernel(dtype)
        self._address: int = self._compiled.address
        self._single: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._address)
        self._parallel = _torch_parallel()

    def run(self, address: int, num_threads: int) -> None:
        """Work off the writes or tasks of the argument array at `address`."""
        if num_threads > 1 and self._parallel is not None:
            self._parallel(self._address, address, num_threads, 0)
        else:
            self._single(address)
