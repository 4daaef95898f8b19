"""Text and bytes of single tokens, for log-probabilities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from whiflash.core.protocols import Tokenizer

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_REPLACEMENT = "�"
_CACHED_TOKENS = 65536


@dataclass(frozen=True, slots=True)
class TokenText:
    """`text` has replacement characters where the token holds a part of a character; `raw` are
    the exact bytes."""

    text: str
    raw: bytes


class TokenTexts:
    """What each token adds to a text that it stands within."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before = tokenizer.encode("a")[-1:]
        self._num_before = len(tokenizer.decode(self._before))
        self.of = lru_cache(maxsize=_CACHED_TOKENS)(self._of)

    def _of(self, token_id: int) -> TokenText:
        """Tokens in front of it keep the tokenizer from stripping a leading space."""
        piece = self._tokenizer.id_to_token(token_id) or ""
        text = self._tokenizer.decode([*self._before, token_id])[self._num_before :]
        if not text:
            return TokenText(piece, piece.encode())
        if _REPLACEMENT not in text:
            return TokenText(text, text.encode())
        return TokenText(text, _piece_bytes(piece) or text.encode())


def _piece_bytes(piece: str) -> bytes:
    """Bytes of a vocabulary entry that is no whole character: `<0xE2>`, or byte-level BPE."""
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    table = _byte_level()
    return bytes(table[char] for char in piece) if all(char in table for char in piece) else b""


@lru_cache(maxsize=1)
def _byte_level() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, other bytes for U+0100 and on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {
        **{chr(byte): byte for byte in shown},
        **{chr(256 + number): byte for number, byte in enumerate(hidden)},
    }
