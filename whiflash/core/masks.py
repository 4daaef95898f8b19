"""Which ids a grammar allows, row by row of a verify forward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WORD_BITS = 32


def num_words(vocab_size: int) -> int:
    """Words that hold one row."""
    return -(-vocab_size // WORD_BITS)


@dataclass(frozen=True, slots=True)
class TokenMasks:
    """Allowed ids of the rows of a draft tree, packed.

    words: int32 [rows, num_words(vocab_size)], row 0 the root; bit i of word w stands for id
           32 * w + i and is set where the id may follow that row's own history. A row that breaks
           the grammar itself, and all below it, allow nothing.
    """

    words: npt.NDArray[np.int32]
    vocab_size: int

    def allows(self, row: int, token_id: int) -> bool:
        word = int(self.words[row, token_id // WORD_BITS])
        return bool((word >> (token_id % WORD_BITS)) & 1)

    def row(self, row: int) -> npt.NDArray[np.bool_]:
        """bool [vocab_size], True where the id is allowed."""
        as_bytes = self.words[row].astype("<i4", copy=False).view(np.uint8)
        bits = np.unpackbits(as_bytes, count=self.vocab_size, bitorder="little")
        return bits.view(np.bool_)
