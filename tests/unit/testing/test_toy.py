"""The toy model: ordinary layout, and texts that make exactness tests worth running."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.toy import (
    BOS_ID,
    EOS_ID,
    SYMBOLS,
    VOCAB_SIZE,
    toy_model,
    toy_tokenizer,
    write_toy,
)

PROMPTS = ("hello world", "def f(x): return x", "1 2 3 4 5 6 7", "[a] {b} <c>", "zzz", "to be")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("toy") / "model")


def _continue(model: torch.nn.Module, prompt: list[int], count: int, temperature: float) -> list:
    generator = torch.Generator().manual_seed(1)
    ids = [BOS_ID, *prompt]
    with torch.inference_mode():
        for _ in range(count):
            z = model(torch.tensor([ids])).logits[0, -1]
            noise = -torch.log(torch.empty_like(z).exponential_(generator=generator))
            ids.append(int((z + temperature * noise).argmax()))
    return ids[1 + len(prompt) :]


def test_folder_is_read_by_the_ordinary_readers(folder: Path) -> None:
    tokenizer = HFTokenizer.load(folder)
    assert (tokenizer.vocab_size, tokenizer.eos_id, VOCAB_SIZE) == (64, EOS_ID, 64)
    assert tokenizer.decode(tokenizer.encode(SYMBOLS)) == SYMBOLS
    assert tokenizer.encode("</s>") == [EOS_ID]
    assert tokenizer.decode([BOS_ID, 3, EOS_ID]) == SYMBOLS[0]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.float64
    assert model.config.vocab_size == VOCAB_SIZE
    for name, weight in toy_model().named_parameters():
        assert torch.equal(weight, model.get_parameter(name))


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (
        dict(toy_model(seed).named_parameters())["lm_head.weight"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_are_varied_repeat_sometimes_and_end(temperature: float) -> None:
    model, tokenizer = toy_model(), toy_tokenizer()
    repeats, ends = 0, 0
    for prompt in PROMPTS:
        text = _continue(model, tokenizer.encode(prompt).ids, 110, temperature)
        shares = np.array(list(Counter(text).values())) / len(text)
        assert -(shares * np.log2(shares)).sum() > 2.5, "the text is nearly constant"
        last = text[-60:]
        assert all(last[period:] != last[:-period] for period in range(1, 25)), "a short loop"
        triples = Counter(zip(text, text[1:], text[2:], strict=False))
        repeats += sum(count - 1 for count in triples.values())
        ends += EOS_ID in text
    assert repeats > 20, "retrieval would find nothing"
    assert ends >= 2, "EOS is hardly ever reached"
