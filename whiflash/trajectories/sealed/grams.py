"""Which short stretches of tokens a text holds: a filter in front of searches that would miss.

One bit array, uint8 [bytes], holds the stretches of both lengths of GRAMS under one hash each. It
may say yes to what is not there, about one time in four, and never no to what is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.sealed.text import TOKEN_BYTES, Array, Int, code_at, jit

Bits = npt.NDArray[np.uint8]
SHORT, LONG = 4, 8
GRAMS = (SHORT, LONG)
ANY = 1 << 30


@jit
def begin_hash(size: Int) -> Int:
    """Of a stretch of `size` tokens, before the first one."""
    return np.uint64(0xCBF29CE484222325) ^ np.uint64(size)


@jit
def add_token(mixed: Int, token: Int) -> Int:
    """The hash with one token more."""
    mixed = (mixed ^ np.uint64(token)) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(29))


@jit
def _bit_of(mixed: Int, bits: Array) -> Int:
    high = (mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)
    return np.int64((high * np.uint64(8 * len(bits))) >> np.uint64(32))


@jit
def set_bit(mixed: Int, bits: Array) -> None:
    """The stretch of that hash is there."""
    bit = _bit_of(mixed, bits)
    bits[bit >> 3] |= np.uint8(1 << (bit & 7))


@jit
def _holds(bits: Array, tail: Array, size: Int) -> bool:
    mixed = begin_hash(size)
    for place in range(len(tail) - size, len(tail)):
        mixed = add_token(mixed, np.int64(tail[place]))
    bit = _bit_of(mixed, bits)
    return bool((bits[bit >> 3] >> (bit & 7)) & 1)


@jit
def longest_possible(bits: Array, tail: Array, floor: Int) -> Int:
    """An upper bound of the tokens at the end of `tail` that the text may hold, looked into only
    as far as it can show that they are no more than `floor`."""
    if floor + 1 >= SHORT and not _holds(bits, tail, SHORT):
        return SHORT - 1
    if floor + 1 >= LONG and not _holds(bits, tail, LONG):
        return LONG - 1
    return ANY


@jit
def note_grams(text: Array, first: Int, end: Int, bits: Array) -> None:
    """The tokens [first, end) of an automaton's text, int32, are there from now on. Stretches that
    reach across two runs are noted too; they cost a search that misses."""
    for last in range(first, end):
        for size in GRAMS:
            if last >= size:
                mixed = begin_hash(size)
                for place in range(last + 1 - size, last + 1):
                    mixed = add_token(mixed, np.int64(text[place]))
                set_bit(mixed, bits)


@jit
def note_text(text: Array, bits: Array) -> None:
    """All tokens of a sealed text, uint8, are there; it stands in reverse, contexts do not."""
    num_tokens = len(text) // TOKEN_BYTES
    for position in range(num_tokens):
        for size in GRAMS:
            if position + size <= num_tokens:
                mixed = begin_hash(size)
                for back in range(position + size - 1, position - 1, -1):
                    mixed = add_token(mixed, code_at(text, back))
                set_bit(mixed, bits)
