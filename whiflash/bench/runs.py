"""Runs of our engine that know nothing of each other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from whiflash.bench.prompts import BenchPrompt
from whiflash.chat.format import ChatFormat
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import Completion
from whiflash.engine.build import EngineParts
from whiflash.engine.engine import Engine
from whiflash.models.tokenizer import HFTokenizer

CACHE_STATE: Final = (
    "cold: every run has its own namespace and stores nothing, so there is no prefix reuse, no "
    "earlier run to draft from and nothing learned from earlier runs in that scope"
)
_numbers = itertools.count()


def encode(engine: Engine, prompts: Sequence[BenchPrompt]) -> list[tuple[int, ...]]:
    """Prompt ids as the engine's chat template writes them."""
    return _encoded(engine.model_folder, engine.model_name, engine.tokenizer, prompts)


def encode_parts(parts: EngineParts, prompts: Sequence[BenchPrompt]) -> list[tuple[int, ...]]:
    """As `encode`, for an engine that is stepped by hand."""
    return _encoded(parts.folder, parts.config.model, parts.tokenizer, prompts)


def _encoded(
    folder: Path, model: str, tokenizer: HFTokenizer, prompts: Sequence[BenchPrompt]
) -> list[tuple[int, ...]]:
    chat = ChatFormat.for_model(folder, model)
    texts = (chat.render(p.messages, p.tools or None) + p.start for p in prompts)
    return [tuple(tokenizer.encode(text)) for text in texts]


def cold_request(
    prompt_ids: Sequence[int],
    max_tokens: int,
    drafter: str | None,
    ignore_eos: bool = False,
    namespace: str | None = None,
) -> GenerationRequest:
    """A greedy request in a namespace of its own; `drafter` None lets the policy choose."""
    return GenerationRequest(
        tuple(prompt_ids),
        SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos),
        namespace=namespace or f"bench-{next(_numbers)}",
        drafter=drafter,
        store=False,
    )


def run_once(engine: Engine, request: GenerationRequest) -> Completion:
    """One request, alone."""
    return engine.submit(request).result().choices[0]


def run_arrivals(
    engine: Engine,
    arrivals_s: Sequence[float],
    make_request: Callable[[int], GenerationRequest],
) -> list[Completion]:
    """Submits request i at arrivals_s[i] seconds from now (ascending) and waits for all."""
    start = time.perf_counter()
    tickets = []
    for number, arrival in enumerate(arrivals_s):
        time.sleep(max(0.0, start + arrival - time.perf_counter()))
        tickets.append(engine.submit(make_request(number)))
    return [ticket.result().choices[0] for ticket in tickets]


def run_closed_loop(
    engine: Engine, concurrency: int, requests: Sequence[GenerationRequest]
) -> list[Completion]:
    """Keeps `concurrency` requests open until none is left; completions in the requests' order."""
    with ThreadPoolExecutor(concurrency) as callers:
        return list(callers.map(lambda request: run_once(engine, request), requests))
