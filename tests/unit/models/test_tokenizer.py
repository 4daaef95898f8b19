"""The tokenizer: exact round trips, special tokens, and a fingerprint of the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from whiflash.core.errors import ModelError
from whiflash.models.tokenizer import HFTokenizer

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(texts: list[str], size: int = 300) -> tokenizers.Tokenizer:
    fast = tokenizers.Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(texts, trainer)
    return fast


TEXTS = ["the van waits at the gate", 'def f(x):\n    return {"x": x}']
TOKENIZER = HFTokenizer(byte_level(TEXTS))


@given(st.text().filter(lambda text: not any(special in text for special in SPECIALS)))
def test_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_special_tokens_are_recognised_and_left_out() -> None:
    assert TOKENIZER.encode("<|im_start|>") == [1]
    assert TOKENIZER.decode([1, *TOKENIZER.encode("van"), 2]) == "van"
    assert TOKENIZER.special_ids == {0, 1, 2}


def test_encode_adds_nothing_and_truncates_nothing() -> None:
    fast = byte_level(TEXTS)
    fast.enable_truncation(max_length=4)
    fast.enable_padding(length=64)
    assert HFTokenizer(fast).encode("x" * 40) == TOKENIZER.encode("x" * 40)


def test_id_to_token() -> None:
    assert TOKENIZER.id_to_token(1) == "<|im_start|>"
    assert TOKENIZER.id_to_token(TOKENIZER.vocab_size) is None
    assert TOKENIZER.id_to_token(-1) is None


def test_fingerprint_is_of_the_vocabulary() -> None:
    assert HFTokenizer(byte_level(TEXTS)).fingerprint == TOKENIZER.fingerprint
    assert len(TOKENIZER.fingerprint) == 16
    other = byte_level(TEXTS)
    other.add_tokens(["<tool_call>"])
    special = byte_level(TEXTS)
    special.add_special_tokens([AddedToken("<tool_call>", special=True)])
    swapped = json.loads(byte_level(TEXTS).to_str())
    vocabulary = swapped["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    prints = {
        HFTokenizer(fast).fingerprint
        for fast in (other, special, tokenizers.Tokenizer.from_str(json.dumps(swapped)))
    }
    assert len(prints | {TOKENIZER.fingerprint}) == 4


def test_load_from_a_folder(tmp_path: Path) -> None:
    saved = PreTrainedTokenizerFast(tokenizer_object=byte_level(TEXTS), eos_token="<|im_end|>")
    saved.chat_template = "{{ messages }}"
    saved.save_pretrained(tmp_path)
    loaded = HFTokenizer.load(tmp_path)
    assert loaded.fingerprint == TOKENIZER.fingerprint
    assert loaded.eos_id == 2
    assert loaded.chat_template == "{{ messages }}"


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError) as error:
        HFTokenizer.load(tmp_path)
    assert "\n" not in str(error.value)
    assert "tokenizer" in str(error.value)
