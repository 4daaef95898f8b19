"""Log-probabilities as chat and text completions write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whiflash.core.protocols import Tokenizer
from whiflash.core.results import TokenLogprob
from whiflash.sampling.detokenizer import Detokenizer
from whiflash.serving.openai.token_texts import TokenTexts

LEAST = -9999.0
"""Stands for minus infinity, which JSON does not have; OpenAI uses the same number."""


def chat_logprobs(entries: Sequence[TokenLogprob], texts: TokenTexts) -> dict[str, Any]:
    """`{"content": [...]}` with an entry for each token, a stop token included."""
    content = [
        {
            **_token(entry.token_id, entry.logprob, texts),
            "top_logprobs": [_token(token, logprob, texts) for token, logprob in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """Of one choice of a text completion: `text_offset` counts characters of the answer."""

    def __init__(self, tokenizer: Tokenizer, texts: TokenTexts) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._texts = texts
        self._offset = 0

    def add(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The next tokens."""
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(self._detokenizer.push(entry.token_id))
        return {
            "tokens": [self._texts.of(entry.token_id).text for entry in entries],
            "token_logprobs": [_finite(entry.logprob) for entry in entries],
            "top_logprobs": [
                {self._texts.of(token).text: _finite(logprob) for token, logprob in entry.top}
                for entry in entries
            ],
            "text_offset": offsets,
        }


def join_text_logprobs(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All tokens of a choice in one record."""
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {name: [item for part in parts for item in part[name]] for name in names}


def _token(token_id: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    token = texts.of(token_id)
    return {"token": token.text, "logprob": _finite(logprob), "bytes": list(token.raw)}


def _finite(logprob: float) -> float:
    return max(logprob, LEAST)
