"""What each id of a vocabulary spells, as a grammar sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whiflash.chat.constraints.library import grammar_library
from whiflash.models.tokenizer import HFTokenizer

if TYPE_CHECKING:
    import xgrammar


def grammar_vocabulary(
    tokenizer: HFTokenizer, vocab_size: int, eos_ids: Sequence[int]
) -> xgrammar.TokenizerInfo:
    """`vocab_size` is the model's. A grammar must read what `tokenizer.decode` writes, so ids
    that decoding leaves out, and ids without a token, spell nothing and are never allowed;
    `eos_ids` are allowed where the grammar may end. Takes half a second for 150,000 ids."""
    from transformers import PreTrainedTokenizerFast

    library = grammar_library()
    as_written = library.TokenizerInfo.from_huggingface(
        PreTrainedTokenizerFast(tokenizer_object=tokenizer.fast),
        vocab_size=vocab_size,
        stop_token_ids=list(eos_ids),
    )
    silent = tokenizer.special_ids | set(eos_ids)
    spelled = [
        b"" if token_id in silent else piece
        for token_id, piece in enumerate(as_written.decoded_vocab)
    ]
    vocabulary: xgrammar.TokenizerInfo = library.TokenizerInfo(
        spelled,
        library.VocabType.RAW,
        vocab_size=vocab_size,
        stop_token_ids=list(eos_ids),
        add_prefix_space=as_written.add_prefix_space,
    )
    return vocabulary
