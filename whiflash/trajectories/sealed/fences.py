"""The search aids of a sealed segment, made when it is opened: fences in its order, and a filter.

A fence is the first eight bytes (two tokens and two thirds) of every STRIDE-th entry of the order,
as one number. They lie together, so that the first two thirds of a binary search stay in the cache
instead of waiting for memory at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.sealed.grams import Bits, note_text
from whiflash.trajectories.sealed.text import TOKEN_BYTES, Array, Ids, Int, Text, jit

STRIDE = 128
FENCE_BYTES = 8
KEY_TOKENS = 3
BITS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, eq=False)
class SearchAids:
    """fences: uint64 [ceil(entries / STRIDE)]; grams: uint8 [bytes], see `grams.py`."""

    fences: npt.NDArray[np.uint64]
    grams: Bits

    @classmethod
    def of(cls, text: Text, order: Ids) -> SearchAids:
        """Takes about 50 ns a token, without the GIL."""
        fences = np.zeros(-(-len(order) // STRIDE), np.uint64)
        fill_fences(text, order, fences)
        num_tokens = len(text) // TOKEN_BYTES
        grams = np.zeros(max(BITS_PER_TOKEN * num_tokens // 8, 1), np.uint8)
        note_text(text, grams)
        return cls(fences, grams)

    @property
    def num_bytes(self) -> int:
        return self.fences.nbytes + self.grams.nbytes


@jit
def fill_fences(text: Array, order: Array, fences: Array) -> None:
    """Beyond the end of the text all bytes are zero."""
    for number in range(len(fences)):
        begin = np.int64(order[number * STRIDE]) * TOKEN_BYTES
        key = np.uint64(0)
        for place in range(begin, begin + FENCE_BYTES):
            key = key << np.uint64(8)
            if place < len(text):
                key |= np.uint64(text[place])
        fences[number] = key


@jit
def _key_of(tail: Array) -> Int:
    """Of a context of at least KEY_TOKENS."""
    last = len(tail) - 1
    third = np.uint64(tail[last - 2]) >> np.uint64(8)
    return (
        np.uint64(tail[last]) << np.uint64(40) | np.uint64(tail[last - 1]) << np.uint64(16) | third
    )


@jit
def _num_below(fences: Array, key: Int, is_equal_below: bool) -> Int:
    low, high = 0, len(fences)
    while low < high:
        middle = (low + high) // 2
        fence = fences[middle]
        if fence < key or (is_equal_below and fence == key):
            low = middle + 1
        else:
            high = middle
    return low


@jit
def fenced_in(fences: Array, num_entries: Int, tail: Array, limit: Int) -> tuple[Int, Int]:
    """Where in the order the search for a context may begin and end: its place and both neighbours
    lie in between."""
    if limit < KEY_TOKENS or len(fences) == 0:
        return 0, num_entries
    key = _key_of(tail)
    begin = max(_num_below(fences, key, False) - 1, 0) * STRIDE
    end = min(_num_below(fences, key, True) * STRIDE + 1, num_entries)
    return begin, end
