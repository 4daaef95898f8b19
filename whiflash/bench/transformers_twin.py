"""The twin: transformers' own `generate` on the same weights, in its faster dtype.

It runs in a process of its own: in ours, its OpenMP team and the engine's would slow each other
down (`engine/thread.py` says why), and neither figure would be what a user of either sees.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import torch

from whiflash.bench.timing import timed

DTYPES: Final = ("float32", "bfloat16")
LOOKUP_TOKENS: Final = 10
"""transformers' documented value of prompt_lookup_num_tokens."""


class TransformersTwin:
    """One loaded model. Greedy only; `generate` is called as its documentation shows."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.dtype = dtype
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _load, (folder, dtype))

    def close(self) -> None:
        """Ends its process."""
        self._pool.shutdown()

    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, lookup: bool = False,
        ignore_eos: bool = False,
    ) -> list[int]:  # fmt: skip
        """Ids of the answer, the end token included."""
        return self.generate_batch([prompt_ids], max_tokens, lookup=lookup, ignore_eos=ignore_eos)[
            0
        ]

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_tokens: int, *, lookup: bool = False,
        ignore_eos: bool = False,
    ) -> list[list[int]]:  # fmt: skip
        """All prompts in one left-padded batch."""
        return self._pool.submit(_generate, prompts, max_tokens, lookup, ignore_eos).result()


_model: Any = None  # of the twin's own process


def _load(folder: Path, dtype: str) -> None:
    """From a model folder, in that dtype."""
    from transformers import AutoModelForCausalLM

    global _model
    _model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), local_files_only=True
    )
    _model.generation_config.pad_token_id = 0
    _model.requires_grad_(False)
    _model.train(False)


def _generate(
    prompts: Sequence[Sequence[int]], max_tokens: int, lookup: bool, ignore_eos: bool
) -> list[list[int]]:
    width = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    options: dict[str, Any] = {"prompt_lookup_num_tokens": LOOKUP_TOKENS} if lookup else {}
    with torch.inference_mode(), _ending(not ignore_eos):
        output = _model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=max_tokens, **options
        )
    if ignore_eos and output.shape[1] != width + max_tokens:
        raise RuntimeError("transformers ended early although the end token is ignored")
    return [row[width:].tolist() for row in output]


@contextmanager
def _ending(stops_at_eos: bool) -> Iterator[None]:
    settings = _model.generation_config
    kept = settings.eos_token_id
    settings.eos_token_id = kept if stops_at_eos else None
    try:
        yield
    finally:
        settings.eos_token_id = kept


def faster_dtype(
    folder: Path, prompts: Sequence[Sequence[int]], num_tokens: int, num_repeats: int
) -> tuple[TransformersTwin, dict[str, float]]:
    """The twin in the dtype that decodes these prompts (as one batch) faster here, and the
    seconds of both: medians of alternating runs after one warm-up each."""
    twins = {dtype: TransformersTwin(folder, dtype) for dtype in DTYPES}
    seconds: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    for repeat in range(num_repeats + 1):
        for dtype, twin in twins.items():
            run = partial(twin.generate_batch, prompts, num_tokens, ignore_eos=True)
            sample = timed(run)
            if repeat:
                seconds[dtype].append(sample.seconds)
    medians = {dtype: statistics.median(values) for dtype, values in seconds.items()}
    faster = min(medians, key=medians.__getitem__)
    for dtype, twin in twins.items():
        if dtype != faster:
            twin.close()
    return twins[faster], medians
