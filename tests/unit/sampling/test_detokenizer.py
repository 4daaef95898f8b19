"""Streamed pieces add up to the whole text and never split a character."""

import re
from collections.abc import Sequence

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from whiflash.sampling.detokenizer import Detokenizer

TEXT = "Héllo, wörld! 你好,世界 😀👩‍👩‍👧 \n\tعربى ñ ▁ naïve"


class Fast:
    """The part of the tokenizer contract that decoding needs, over a real fast tokenizer."""

    fingerprint = "test"

    def __init__(self, fast: tokenizers.Tokenizer) -> None:
        self.fast = fast

    def encode(self, text: str) -> list[int]:
        return list(self.fast.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.fast.decode(list(token_ids), skip_special_tokens=True))

    def id_to_token(self, token_id: int) -> str | None:
        return self.fast.id_to_token(token_id)


def byte_level() -> Fast:
    """GPT-2 style: every byte is a symbol, a few merges make pieces that split characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    symbol_of = _byte_symbols()
    merges = [(symbol_of[0xE4], symbol_of[0xBD]), (symbol_of[0x61], symbol_of[0xF0])]
    vocabulary = {symbol: i for i, symbol in enumerate(alphabet)}
    vocabulary |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    fast = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<|end|>"])
    return Fast(fast)


def _byte_symbols() -> list[str]:
    """The symbol of each byte in the byte-level alphabet."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    table = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return [table[b] for b in range(256)]


def byte_fallback() -> Fast:
    """Llama style: pieces with a word mark, unknown characters as <0xNN> pieces."""
    vocabulary = {"<unk>": 0, "</s>": 1}
    vocabulary |= {f"<0x{byte:02X}>": 2 + byte for byte in range(256)}
    for piece in ("▁", "▁Hello", "a", "b", "▁a", "é", "�"):
        vocabulary[piece] = len(vocabulary)
    fast = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    fast.add_special_tokens(["</s>"])
    return Fast(fast)


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}


def _pieces(tokenizer: Fast, ids: Sequence[int]) -> list[str]:
    stream = Detokenizer(tokenizer)
    return [*(stream.push(token) for token in ids), stream.flush()]


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_ids_add_up(kind: str, data: st.DataObject) -> None:
    """Also invalid UTF-8, special tokens in the middle, and ends inside a character."""
    tokenizer = TOKENIZERS[kind]
    size = tokenizer.fast.get_vocab_size()
    high = st.integers(130, size - 1)
    ids = data.draw(st.lists(st.one_of(st.integers(0, size - 1), high), max_size=40))
    assert "".join(_pieces(tokenizer, ids)) == tokenizer.decode(ids)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_valid_text_never_shows_a_replacement_character(text: str) -> None:
    tokenizer = TOKENIZERS["byte level"]
    text = text.replace("�", "")
    ids = tokenizer.encode(text)
    pieces = _pieces(tokenizer, ids)
    assert "".join(pieces) == text
    assert not any("�" in piece for piece in pieces)
    assert pieces[-1] == ""


def test_emoji_and_cjk_come_when_they_are_complete() -> None:
    tokenizer = TOKENIZERS["byte level"]
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT)
    pieces = _pieces(tokenizer, ids)
    assert "".join(pieces) == TEXT
    assert "😀" in pieces


def test_text_in_front_of_an_unfinished_character_is_not_withheld() -> None:
    """A piece may end a word and begin a character: "a" + the first byte of an emoji."""
    tokenizer = TOKENIZERS["byte level"]
    piece = next(i for i in range(300) if re.fullmatch("að", tokenizer.id_to_token(i) or ""))
    stream = Detokenizer(tokenizer)
    assert stream.push(piece) == "a"
    rest = [tokenizer.encode("😀")[i] for i in (1, 2, 3)]
    assert [stream.push(token) for token in rest] == ["", "", "😀"]


def test_byte_pieces_wait_for_the_end_of_their_run() -> None:
    """tokenizers' DecodeStream raises here: the run turns out invalid as a whole."""
    tokenizer = TOKENIZERS["byte fallback"]
    hello, a = (tokenizer.fast.token_to_id(piece) for piece in ("▁Hello", "a"))
    stream = Detokenizer(tokenizer)
    pieces = [stream.push(token) for token in (hello, 2 + 0x41, 2 + 0xFF, a)]
    assert pieces == ["Hello", "", "", "��a"]


def test_special_tokens_give_no_text_and_do_not_disturb() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    mark_a = tokenizer.fast.token_to_id("▁a")
    ids = [1, mark_a, 1, 1, mark_a, 1]
    assert _pieces(tokenizer, ids) == ["", "a", "", "", " a", "", ""]


def test_window_stays_small_on_garbage() -> None:
    """Thousands of invalid bytes must not be decoded again and again."""
    tokenizer = TOKENIZERS["byte level"]
    bad = tokenizer.fast.token_to_id(_byte_symbols()[0xFF])
    stream = Detokenizer(tokenizer)
    text = "".join(stream.push(bad) for _ in range(2000))
    assert len(stream._window) <= 65
    assert text + stream.flush() == "�" * 2000
