"""Compilers for the toy's vocabulary, for single bytes and for a real tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.core.protocols import TargetInfo
from whiflash.models.sources import resolve
from whiflash.models.tokenizer import HFTokenizer
from whiflash.testing.toy import EOS_ID, VOCAB_SIZE, toy_tokenizer


def info(vocab_size: int, *eos_ids: int) -> TargetInfo:
    return TargetInfo(
        "toy", "Llama", 2, 32, vocab_size, 512, eos_ids, "float64", "cpu", "", "", "bitwise",
        0, 0, "f",
    )  # fmt: skip


@pytest.fixture(scope="session")
def toy_compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(HFTokenizer(toy_tokenizer()), info(VOCAB_SIZE, EOS_ID))
    yield compiler
    compiler.check_integrity()
    compiler.close()


@pytest.fixture(scope="session")
def smol() -> HFTokenizer:
    """SmolLM2's tokenizer: byte level, `<tool_call>` is several ids."""
    return HFTokenizer.load(resolve("smollm2-135m"))


@pytest.fixture(scope="session")
def smol_compiler(smol: HFTokenizer) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(smol, info(49_152, smol.eos_id or 2))
    yield compiler
    compiler.close()
