"""What front ends need of an engine, be it in this process or behind a verifier's stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from whiflash.chat.format import ChatFormat
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import Completion, Delta


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The one model behind a server. `arms` holds `none` and every drafter that is configured.

    slots:     choices that run in one forward at most; calls beyond wait in front of the backend.
    kv_tokens: prompt and answer tokens that its KV memory can hold, all choices together; 0 where
               it is not known, which bounds nothing.
    eos_ids:   ids that end an answer unless a call ignores them.
    has_constraints: it can hold an answer to a form (GenerationRequest.constraint).
    """

    name: str
    fingerprint: str
    context_limit: int
    vocab_size: int
    arms: tuple[str, ...]
    created_s: int
    slots: int = 32
    kv_tokens: int = 0
    eos_ids: tuple[int, ...] = ()
    has_constraints: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """How busy it is now. `kv_bytes` of `kv_limit_bytes` are held by running sequences."""

    running: int
    waiting: int
    kv_bytes: int
    kv_limit_bytes: int
    tokens_per_s: float


class Backend(Protocol):
    """Methods may be called from any task of one event loop."""

    @property
    def model(self) -> ServedModel: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat(self) -> ChatFormat: ...

    def run(self, request: GenerationRequest, seed: int) -> AsyncIterator[Delta | Completion]:
        """All choices of a request, deltas and completions as they come. Closing the iterator
        cancels the request. Raises the request's WhiFlashError."""

    def plan(self) -> dict[str, Any]:
        """The resolved plan, JSON-able."""

    def load(self) -> Load: ...

    @property
    def is_ready(self) -> bool:
        """Warmed up, and neither draining nor broken."""
