"""The text of a sealed segment: runs as bytes, the numba kernels that write and sort it.

Three bytes a token, most significant first, so that bytes sort as tokens do. The whole text stands
in reverse, the newest token of the newest run first: what begins at a position there is what came
*before* a token, so one search finds the longest suffix of a context. The last token of every run
bears LAST and so equals no token of a context: no match reaches across runs, or ends where nothing
follows.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from pydivsufsort.dll import libdivsufsort

from whiflash.trajectories.errors import StoreError

Ids = npt.NDArray[np.int32]
Text = npt.NDArray[np.uint8]
Array = Any
Int = Any

TOKEN_BYTES = 3
LAST = 1 << 23
"""Ids from here on cannot be stored."""
LIVE, UNCONFIRMED, DEAD = range(3)
"""States of a run. UNCONFIRMED: read from a file, not yet met in the log again."""


def jit(function: Any) -> Any:
    """Compiles at the first call; the GIL is not held while it runs. Indices are not checked."""
    return njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)


@jit
def code_at(text: Array, position: Int) -> Int:
    """The token at a position of the reversed text, with LAST where it ends its run."""
    place = position * TOKEN_BYTES
    high, middle = np.int64(text[place]), np.int64(text[place + 1])
    return high << 16 | middle << 8 | np.int64(text[place + 2])


@jit
def _put_code(text: Array, position: Int, code: Int) -> None:
    place = position * TOKEN_BYTES
    text[place] = code >> 16 & 0xFF
    text[place + 1] = code >> 8 & 0xFF
    text[place + 2] = code & 0xFF


@jit
def run_at(ends: Array, position: Int, num_tokens: Int) -> Int:
    """Number of the run that a position of the reversed text is in."""
    forward = num_tokens - 1 - position
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if ends[middle] <= forward:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def write_runs(tokens: Array, ends: Array, text: Array) -> None:
    """Runs that lie one behind the other in `tokens`, int32 [n], run r up to ends[r]."""
    start = 0
    for run in range(len(ends)):
        for place in range(start, ends[run]):
            _put_code(text, len(tokens) - 1 - place, np.int64(tokens[place]))
        _put_code(text, len(tokens) - ends[run], np.int64(tokens[ends[run] - 1]) | LAST)
        start = ends[run]


@jit
def copy_runs(source: Array, ends: Array, is_kept: Array, text: Array, done: Int) -> Int:
    """Copies the kept runs of a text behind the `done` tokens that `text` holds already, "behind"
    being before in a reversed text; how many it holds then."""
    num_tokens = len(source) // TOKEN_BYTES
    start = 0
    for run in range(len(ends)):
        length = ends[run] - start
        if is_kept[run]:
            begin = (num_tokens - ends[run]) * TOKEN_BYTES
            place = len(text) - (done + length) * TOKEN_BYTES
            for number in range(length * TOKEN_BYTES):
                text[place + number] = source[begin + number]
            done += length
        start = ends[run]
    return done


@jit
def hash_runs(text: Array, ends: Array) -> Array:
    """uint64 [runs]: equal for identical runs (FNV-1a over the bytes)."""
    hashes = np.empty(len(ends), np.uint64)
    num_tokens = len(text) // TOKEN_BYTES
    start = 0
    for run in range(len(ends)):
        mixed = np.uint64(0xCBF29CE484222325)
        begin = (num_tokens - ends[run]) * TOKEN_BYTES
        for number in range((ends[run] - start) * TOKEN_BYTES):
            mixed = (mixed ^ np.uint64(text[begin + number])) * np.uint64(0x100000001B3)
        hashes[run] = mixed
        start = ends[run]
    return hashes


@jit
def _take_order(text: Array, byte_order: Array, order: Array) -> Int:
    """Of the sorted byte positions those at which a token begins that is not its run's last."""
    num_taken = 0
    for number in range(len(byte_order)):
        place = byte_order[number]
        if place % TOKEN_BYTES == 0 and text[place] < LAST >> 16:
            order[num_taken] = place // TOKEN_BYTES
            num_taken += 1
    return num_taken


def sorted_order(text: Text, num_runs: int) -> Ids:
    """int32 [tokens - runs], the suffix array over the tokens that something follows. Takes 12
    bytes a token beside it while it works; the GIL is not held.

    The library's own function takes a suffix array from Python; called like this it fills ours.
    """
    order = np.empty(len(text) // TOKEN_BYTES - num_runs, np.int32)
    if len(order) == 0:
        return order
    byte_order = np.empty(len(text), np.int32)
    failed = libdivsufsort.divsufsort(
        text.ctypes.data_as(ctypes.c_void_p),
        byte_order.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int32(len(text)),
    )
    if failed:
        raise StoreError(f"a segment could not be sorted (libdivsufsort says {failed})")
    num_taken = _take_order(text, byte_order, order)
    assert num_taken == len(order), (num_taken, len(order))
    return order


def token_ids(text: Text) -> Ids:
    """int32 [tokens], in the order in which they were written, without marks."""
    codes = text.reshape(-1, TOKEN_BYTES)[::-1].astype(np.int32)
    return (codes[:, 0] << 16 | codes[:, 1] << 8 | codes[:, 2]) & (LAST - 1)


def are_storable(tokens: Ids) -> bool:
    """Whether every id is one that three bytes hold."""
    return len(tokens) == 0 or (int(tokens.min()) >= 0 and int(tokens.max()) < LAST)
