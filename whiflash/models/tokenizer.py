"""The target's tokenizer: exact ids in, exact text out, and a name for its vocabulary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from whiflash.core.errors import ModelError
from whiflash.models.quiet import quiet_libraries


class HFTokenizer:
    """`core.protocols.Tokenizer` over a fast tokenizer. Safe to share between threads.

    `fast` is the underlying tokenizers.Tokenizer (for streaming decoders), `chat_template` the
    template that came with the model or None.
    """

    def __init__(
        self,
        fast: tokenizers.Tokenizer,
        chat_template: str | None = None,
        eos_id: int | None = None,
    ) -> None:
        # A stored truncation or padding rule would silently change long prompts.
        fast.no_truncation()
        fast.no_padding()
        self.fast = fast
        self.chat_template = chat_template
        self.eos_id = eos_id

    @classmethod
    def load(cls, folder: Path, gguf_file: str | None = None) -> HFTokenizer:
        """Reads the tokenizer of a model folder (of the GGUF file in it, if named).

        Raises ModelError if there is none or it has no fast form.
        """
        from transformers import AutoTokenizer

        quiet_libraries()
        options = {"gguf_file": gguf_file} if gguf_file else {}
        try:
            loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        except (OSError, ValueError, ImportError, AttributeError, TypeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ModelError(f"{folder} has no readable tokenizer: {reason}") from error
        fast = getattr(loaded, "backend_tokenizer", None)
        if not isinstance(fast, tokenizers.Tokenizer):
            raise ModelError(f"{folder} has no fast tokenizer; add a tokenizer.json to the folder")
        if not fast.encode("text", add_special_tokens=False).ids:
            # transformers makes an empty one where a model's tokenizer files are missing.
            raise ModelError(f"{folder} has no tokenizer; copy the model's tokenizer.json into it")
        template = loaded.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        return cls(fast, template, loaded.eos_token_id)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over all (token, id) pairs and the added and special tokens: equal iff
        ids mean the same text."""
        vocabulary = sorted(self.fast.get_vocab(with_added_tokens=True).items())
        added = sorted(
            (token_id, token.content, token.special)
            for token_id, token in self.fast.get_added_tokens_decoder().items()
        )
        data = json.dumps([vocabulary, added], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(data.encode()).hexdigest()[:16]

    @property
    def vocab_size(self) -> int:
        """Ids that have a token, added ones included."""
        return self.fast.get_vocab_size(with_added_tokens=True)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that `decode` leaves out."""
        added = self.fast.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens written in it are recognised, none are added."""
        return list(self.fast.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids without special tokens."""
        return str(self.fast.decode([int(i) for i in token_ids], skip_special_tokens=True))

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's own spelling of an id, None if it has none."""
        return self.fast.id_to_token(token_id) if token_id >= 0 else None
