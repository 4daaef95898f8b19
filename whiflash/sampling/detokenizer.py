"""Text of a growing list of ids, piece by piece, never ending inside a character.

`tokenizers.decoders.DecodeStream` raises on byte pieces that turn out to be invalid UTF-8 and
withholds all text in front of an unfinished character; here the pieces always add up to
`decode(all ids)`.
"""

from __future__ import annotations

import re

from whiflash.core.protocols import Tokenizer

_REPLACEMENT = "�"  # what decoders write for bytes that are no (complete) character
_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# UTF-8 finds back into step within four bytes, so this much context decides any tail.
_CONTEXT_TOKENS = 16
_MAX_WINDOW_TOKENS = 64


class Detokenizer:
    """Decodes one choice's ids incrementally.

    Invariant: everything given out, plus `flush()`, is `tokenizer.decode` of all ids pushed.
    Only a short window of ids is decoded again: the last piece of text as context, and what came
    since. Withheld are a last replacement character (more bytes may complete it) and a run of
    byte pieces until it ends (decoders judge such a run as a whole).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._num_context = 0  # ids of the window that only serve as context
        self._num_sent = 0  # characters of the window's text already given out
        self._silent: dict[int, bool] = {}

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes; often empty, never with an unfinished end."""
        if self._is_silent(token_id):
            return ""
        self._window.append(token_id)
        if self._is_byte_piece(token_id):
            return ""
        text = self._tokenizer.decode(self._window)
        is_open = text.endswith(_REPLACEMENT)
        end = len(text) - 1 if is_open else len(text)
        delta = text[self._num_sent : end]
        self._num_sent = max(self._num_sent, end)
        if not is_open and delta:
            self._shrink(self._num_context, num_open=0)
        elif is_open and len(self._window) > _MAX_WINDOW_TOKENS:
            self._shrink(len(self._window) - _CONTEXT_TOKENS, num_open=1)
        return delta

    def flush(self) -> str:
        """What is still withheld, at the end of the turn. The detokenizer is spent afterwards."""
        delta = self._tokenizer.decode(self._window)[self._num_sent :]
        self._num_sent += len(delta)
        return delta

    def _shrink(self, num_dropped: int, num_open: int) -> None:
        del self._window[:num_dropped]
        self._num_context = len(self._window)
        self._num_sent = len(self._tokenizer.decode(self._window)) - num_open

    def _is_byte_piece(self, token_id: int) -> bool:
        return _BYTE_PIECE.fullmatch(self._tokenizer.id_to_token(token_id) or "") is not None

    def _is_silent(self, token_id: int) -> bool:
        """Ids that decoding leaves out. One id alone does not tell: a lone space may be stripped
        at the start of a text."""
        if token_id not in self._silent:
            self._silent[token_id] = not self._tokenizer.decode([token_id, token_id])
        return self._silent[token_id]
