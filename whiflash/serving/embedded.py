"""The engine of this process as a backend."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from whiflash.chat.format import ChatFormat
from whiflash.core.errors import InvalidRequestError, ModelError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import Target, Tokenizer
from whiflash.core.results import Completion, Delta
from whiflash.engine.engine import Engine
from whiflash.serving.backend import Load, ServedModel
from whiflash.serving.trajectories.conversation import TurnReader
from whiflash.serving.trajectories.desk import StoreDesk

RATE_WINDOW_S = 10.0
WARM_UP_TOKENS = 8
PLAN_TRIES = 5
WARM_UP_NAMESPACE = "warm-up"


class EmbeddedBackend:
    """Backend over an Engine, which it does not own: close that one yourself.

    name: what the model is called by clients; default the engine's own name for it.
    Not ready before `warm_up`. Raises ConfigError if the chat template that was asked for cannot
    be read; a model without one serves plain text, and chats are refused.
    """

    def __init__(self, engine: Engine, name: str = "") -> None:
        self._engine = engine
        self._model = _served_model(engine, name or engine.model_name)
        self._no_chat = ""
        self._chat: ChatFormat | None = None
        self._is_warm = False
        self._rate = _Rate()
        try:
            override = engine.config.chat_template
            self._chat = ChatFormat.for_model(engine.model_folder, engine.model_name, override)
        except ModelError as error:
            self._no_chat = str(error)

    @property
    def model(self) -> ServedModel:
        return self._model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def chat(self) -> ChatFormat:
        """Raises InvalidRequestError where the model has no chat template."""
        if self._chat is None:
            raise InvalidRequestError(self._no_chat, "messages")
        return self._chat

    def run(self, request: GenerationRequest, seed: int) -> AsyncIterator[Delta | Completion]:
        """See Backend. The engine runs on its own thread; this only waits for events."""
        return self._engine.events(request, seed)

    def plan(self) -> dict[str, Any]:
        """See Backend. Live tables may grow while they are read; then they are read again."""
        for _ in range(PLAN_TRIES - 1):
            with contextlib.suppress(RuntimeError):
                return self._engine.plan()
        return self._engine.plan()

    def desk(self) -> StoreDesk:
        """The engine's store for those who keep it."""
        store, tokenizer = self._engine.store, self._engine.tokenizer

        def turn_reader() -> TurnReader:
            return TurnReader(self.chat, tokenizer, self._model.eos_ids)

        return StoreDesk(store.log, store.scopes, store.redactor(), turn_reader)

    def load(self) -> Load:
        """A snapshot from outside the engine's thread: each value is right, all together may be
        a step apart."""
        core = self._engine.core
        running = list(core.running)
        return Load(
            running=len(running),
            waiting=len(core.admission.waiting),
            kv_bytes=sum(sequence.reserved_bytes for sequence in running),
            kv_limit_bytes=self._engine.limits.memory_bytes,
            tokens_per_s=self._rate.update(core.counters.emitted_tokens),
        )

    def warm_up(self) -> None:
        """Runs a short request of each arm, so that the first caller pays for no compilation.
        Blocks; raises what the engine raises."""
        prompt = self.tokenizer.encode("a b a b a b a b a b a b a b a b") or [0]
        params = SamplingParams(max_tokens=WARM_UP_TOKENS, ignore_eos=True)
        for arm in self._model.arms:
            request = GenerationRequest(
                tuple(prompt), params, namespace=WARM_UP_NAMESPACE, drafter=arm, store=False
            )
            self._engine.submit(request).result()
        self._is_warm = True

    @property
    def is_running(self) -> bool:
        """The engine's loop is alive."""
        return self._engine.is_running

    @property
    def is_ready(self) -> bool:
        return self._is_warm and self._engine.is_running


def _served_model(engine: Engine, name: str) -> ServedModel:
    info, limits = engine.core.target.info, engine.limits
    return ServedModel(
        name=name,
        fingerprint=info.fingerprint,
        context_limit=info.context_limit,
        vocab_size=info.vocab_size,
        arms=tuple(engine.plan()["arms"]),
        created_s=int(time.time()),
        slots=limits.max_batch,
        kv_tokens=_tokens_in(engine.core.target, limits.memory_bytes, limits.max_draft_nodes),
        eos_ids=info.eos_ids,
        has_constraints=engine.has_constraints,
    )


def _tokens_in(target: Target, memory_bytes: int, scratch: int) -> int:
    """Most prompt and answer tokens of one sequence whose cache fits the memory."""
    fits, over = 0, max(2, memory_bytes // max(target.info.cache_bytes_per_token, 1) + 2)
    while over - fits > 1:
        middle = (fits + over) // 2
        if target.cache_bytes(middle + scratch) <= memory_bytes:
            fits = middle
        else:
            over = middle
    return fits


class _Rate:
    """Tokens per second over the last seconds, from a running total read now and then."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def update(self, total: int) -> float:
        now = time.monotonic()
        while len(self._points) > 1 and now - self._points[0][0] > RATE_WINDOW_S:
            self._points.popleft()
        since, before = self._points[0]
        self._points.append((now, total))
        return (total - before) / max(now - since, 1e-3)
