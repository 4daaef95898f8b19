"""Keyed Gumbel noise: a pure function of (key, index of the generated token, token id).

Definition (design.md 5). Ids are cut into blocks of 64. Every block draws the least of its 64
unit exponentials first, E_min ~ Exp(64), and its place, uniform; by memorylessness every other id
of the block has E = E_min + a fresh unit exponential. These E are independent unit exponentials,
and the noise of an id is g = -log E. A uniform comes from a 64-bit counter hash h as
v = ((h >> 12) + 0.5) * 2^-52, an exponential as -log1p(-v); 1 - v is exact in float64.
The vocabulary size does not enter, nor does the way in which the noise is evaluated.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from whiflash.sampling.arithmetic import log_positive

FloatRow = npt.NDArray[np.float64]
IdArray = npt.NDArray[np.int64]
BLOCK_IDS = 64
TEXT_PURPOSE = "text"
_BLOCK_COUNTER = 1 << 32  # ids stay below 2^31, block draws count from here: no counter is shared
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd
_ROUND_1 = 0xBF58476D1CE4E5B9
_ROUND_2 = 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """128 bits that fix all noise of one choice. They are not shown: a key tells the text."""

    secret: bytes

    def __repr__(self) -> str:
        return "NoiseKey(...)"

    def lanes(self, index: int) -> tuple[np.uint64, np.uint64]:
        """The two words that seed the noise of generated token `index` (from 0)."""
        digest = hashlib.blake2b(
            index.to_bytes(8, "little"), digest_size=16, key=self.secret, person=b"whiflash-index"
        ).digest()
        return (
            np.uint64(int.from_bytes(digest[:8], "little")),
            np.uint64(int.from_bytes(digest[8:], "little")),
        )


def fresh_seed() -> int:
    """128 random bits for a request without a seed; returned to the caller, never logged."""
    return secrets.randbits(128)


def prompt_fingerprint(prompt_ids: Sequence[int]) -> bytes:
    """16 bytes that stand for the exact prompt ids."""
    ids = np.asarray(prompt_ids, dtype="<i8")
    return hashlib.blake2b(ids.tobytes(), digest_size=16, person=b"whiflash-prompt").digest()


def derive_key(
    seed: int, choice: int, prompt_ids: Sequence[int], purpose: str = TEXT_PURPOSE
) -> NoiseKey:
    """The key of one choice: BLAKE2b of seed, choice index, prompt fingerprint and purpose.

    `seed` lies in [0, 2^128). Drafters that couple to the text use the purpose `text`, too.
    """
    message = b"".join(
        (
            seed.to_bytes(16, "little"),
            choice.to_bytes(8, "little"),
            prompt_fingerprint(prompt_ids),
            purpose.encode(),
        )
    )
    return NoiseKey(hashlib.blake2b(message, digest_size=16, person=b"whiflash-key").digest())


@njit(nogil=True)
def _mix(word: np.uint64) -> np.uint64:
    """Bijective finaliser of 64 bits (Stafford 2011, variant 13)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_ROUND_1)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_ROUND_2)
    return word ^ (word >> np.uint64(31))


@njit(nogil=True)
def _hash(lane_0: np.uint64, lane_1: np.uint64, counter: np.uint64) -> np.uint64:
    return _mix(_mix(lane_0 + counter * np.uint64(_STEP)) ^ lane_1)


@njit(nogil=True)
def _exponential(word: np.uint64) -> float:
    uniform = (np.float64(word >> np.uint64(12)) + 0.5) * 2.0**-52
    return -log_positive(1.0 - uniform)


@njit(nogil=True)
def block_minimum(lane_0: np.uint64, lane_1: np.uint64, block: int) -> tuple[float, np.int64]:
    """(E_min, id of the minimum) of a block; the id may lie beyond the vocabulary."""
    word = _hash(lane_0, lane_1, np.uint64(_BLOCK_COUNTER) + np.uint64(block))
    # The low 12 bits are not used by the exponential, so the place is independent of the value.
    place = np.int64(word & np.uint64(BLOCK_IDS - 1))
    return _exponential(word) / BLOCK_IDS, np.int64(block * BLOCK_IDS) + place


@njit(nogil=True)
def gumbel_in_block(
    lane_0: np.uint64, lane_1: np.uint64, token: int, least: float, least_id: np.int64
) -> float:
    """Noise of one id, given its block's minimum."""
    extra = _exponential(_hash(lane_0, lane_1, np.uint64(token)))
    return -log_positive(least + (0.0 if token == least_id else extra))


@njit(nogil=True, cache=True)
def _gumbel_row(lane_0: np.uint64, lane_1: np.uint64, out: FloatRow) -> None:
    for start in range(0, len(out), BLOCK_IDS):
        least, least_id = block_minimum(lane_0, lane_1, start // BLOCK_IDS)
        for token in range(start, min(start + BLOCK_IDS, len(out))):
            out[token] = gumbel_in_block(lane_0, lane_1, token, least, least_id)


@njit(nogil=True, cache=True)
def _gumbel_ids(lane_0: np.uint64, lane_1: np.uint64, ids: IdArray, out: FloatRow) -> None:
    for i in range(len(ids)):
        least, least_id = block_minimum(lane_0, lane_1, ids[i] // BLOCK_IDS)
        out[i] = gumbel_in_block(lane_0, lane_1, ids[i], least, least_id)


def gumbel_row(key: NoiseKey, index: int, vocab_size: int) -> FloatRow:
    """float64 [vocab_size], the noise of all ids at generated token `index`."""
    out = np.empty(vocab_size)
    _gumbel_row(*key.lanes(index), out)
    return out


def gumbel_of(key: NoiseKey, index: int, ids: npt.ArrayLike) -> FloatRow:
    """float64, the noise of the given target ids at generated token `index`."""
    wanted = np.ascontiguousarray(ids, np.int64)
    out = np.empty(len(wanted))
    _gumbel_ids(*key.lanes(index), wanted, out)
    return out
