"""Suite `routing`: other engines on the same prompts, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from whiflash.bench.llama_twin import LlamaTwin, open_llama
from whiflash.bench.routing_engine import Asked
from whiflash.bench.transformers_twin import TransformersTwin, faster_dtype

PLAIN_TWIN, LOOKUP_TWIN, LLAMA = "transformers", "its prompt lookup", "llama.cpp"
_WARM_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Peers:
    """llama: the twin, or why there is none."""

    transformers: TransformersTwin
    llama: LlamaTwin | str

    @classmethod
    def open(cls, model: str, path: Path, asked: Asked, stack: ExitStack) -> Peers:
        """All that are installed, closed with `stack`; asked: decides transformers' dtype. path:
        what `model` resolves to."""
        twin, _ = faster_dtype(path, [asked.ids], _WARM_TOKENS, 2)
        stack.callback(twin.close)
        return cls(twin, open_llama(model, path, stack))

    def runs(self, asked: Asked) -> dict[str, Callable[[], Any]]:
        """By row."""
        generate = self.transformers.generate
        runs: dict[str, Callable[[], Any]] = {
            PLAIN_TWIN: partial(generate, asked.ids, asked.max_tokens),
            LOOKUP_TWIN: partial(generate, asked.ids, asked.max_tokens, lookup=True),
        }
        if isinstance(self.llama, LlamaTwin):
            runs[LLAMA] = partial(self.llama.generate, asked.ids, asked.max_tokens)
        return runs

    def left_out(self, category: str) -> Iterator[dict[str, Any]]:
        """A row for each that could not be run, which says why."""
        if isinstance(self.llama, str):
            yield {"category": category, "batch": 1, "row": LLAMA, "is_static": False,
                   "shares": self.llama}  # fmt: skip
