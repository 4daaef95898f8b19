"""Many verifiers as one backend: requests go on elsewhere when theirs is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from whiflash.chat.format import ChatFormat
from whiflash.core.errors import InvalidRequestError, QueueFullError, WhiFlashError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import Completion, Delta, FinishReason
from whiflash.rpc.verifier_events import ChoiceEnd
from whiflash.serving.backend import Load, ServedModel
from whiflash.serving.remote.faults import MOVABLE, NoVerifierError, VerifierLostError
from whiflash.serving.remote.pool import VerifierPool
from whiflash.serving.remote.record import InFlightRecord

logger = logging.getLogger("whiflash.gateway")

PLAN_EVERY_S = 1.0
WAIT_S = 0.05
"""Between attempts, times the number of verifiers that were tried in vain."""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """resume_s: how long a request that has begun waits for a verifier to go on at; one that has
    not begun waits `begin_s`. max_idle_moves: verifiers in a row that may be lost under a request
    without a token from any: it might be what kills them."""

    resume_s: float = 30.0
    begin_s: float = 5.0
    max_idle_moves: int = 3


class RemoteBackend:
    """Backend over a pool, which it does not own: open it, and wait for `first`, beforehand.

    model:  as the front ends shall see it (`served_model`).
    chat:   None where the model has no chat template; then `no_chat` says so.
    """

    def __init__(
        self,
        pool: VerifierPool,
        model: ServedModel,
        tokenizer: Tokenizer,
        chat: ChatFormat | None,
        no_chat: str = "this model has no chat template",
        limits: MoveLimits | None = None,
    ) -> None:
        self._pool = pool
        self._model = model
        self._tokenizer = tokenizer
        self._chat = chat
        self._no_chat = no_chat
        self._limits = limits or MoveLimits()
        self._records: set[InFlightRecord] = set()
        self._plan: dict[str, Any] = {}
        self.num_moves = 0

    @property
    def model(self) -> ServedModel:
        return self._model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def chat(self) -> ChatFormat:
        """Raises InvalidRequestError where the model has no chat template."""
        if self._chat is None:
            raise InvalidRequestError(self._no_chat, "messages")
        return self._chat

    @property
    def is_ready(self) -> bool:
        return bool(self._pool.live())

    @property
    def num_in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._records)

    async def run(
        self, request: GenerationRequest, seed: int
    ) -> AsyncGenerator[Delta | Completion, None]:
        """See Backend. Whatever verifiers do, the text is that of an undisturbed run; what cannot
        go on is DrainingError, which tells the caller to try again."""
        record = InFlightRecord(request, seed)
        moves = _Moves(self._limits)
        self._records.add(record)
        try:
            while not record.is_done:
                try:
                    async with aclosing(self._attempt(record, moves)) as events:
                        async for event in events:
                            yield event
                except NoVerifierError:
                    raise
                except (*MOVABLE, QueueFullError) as error:
                    await moves.note(error, record)
                    self.num_moves += 1
                    if (end := record.lost_end(self._model, self._tokenizer)) is not None:
                        yield end
        finally:
            self._records.discard(record)

    async def _attempt(
        self, record: InFlightRecord, moves: _Moves
    ) -> AsyncGenerator[Delta | Completion, None]:
        """One verifier's part of the answer."""
        patience_s = self._limits.resume_s if record.has_begun else self._limits.begin_s
        link = await self._pool.choose(record.request, moves.avoided, patience_s)
        moves.at(link.address)
        async with aclosing(link.generate(record.next_request(), record.seed)) as events:
            async for event in events:
                if isinstance(event, ChoiceEnd) and event.finish_reason is FinishReason.CANCELLED:
                    raise VerifierLostError("the verifier's engine ended the request")
                taken = record.take(event)
                if taken is not None:
                    yield taken
        if not record.is_done:
            raise VerifierLostError("the verifier's stream ended before the answer did")

    def plan(self) -> dict[str, Any]:
        """The plan of a verifier as of the last `refresh`, and the verifiers."""
        verifiers = [dataclasses.asdict(status) for status in self._pool.status()]
        cluster = {"moves": self.num_moves, "in_flight": self.num_in_flight}
        return {**self._plan, "cluster": {**cluster, "verifiers": verifiers}}

    async def refresh(self) -> None:
        """Fetches the plan of a verifier that lives; without one the last plan stays."""
        for link in self._pool.live():
            with suppress(WhiFlashError):
                self._plan = await link.plan()
                return

    async def keep_fresh(self) -> None:
        """Refreshes now and then until it is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(PLAN_EVERY_S)

    def load(self) -> Load:
        """The sum over all that live, as of their last sign of life."""
        loads = [link.state.load for link in self._pool.live() if link.state is not None]
        return Load(
            running=sum(load.running for load in loads),
            waiting=sum(load.waiting for load in loads),
            kv_bytes=sum(load.kv_bytes for load in loads),
            kv_limit_bytes=sum(load.kv_limit_bytes for load in loads),
            tokens_per_s=sum(load.tokens_per_s for load in loads),
        )

    def check_integrity(self) -> None:
        self._pool.check_integrity()
        for record in self._records:
            record.check_integrity()


def served_model(model: ServedModel, name: str, max_verifiers: int) -> ServedModel:
    """What a gateway serves with up to `max_verifiers` of this model. Prompts are bounded by the
    memory of one; the sum of all, which grows and shrinks, by the verifiers' own queues."""
    has_tight_memory = 0 < model.kv_tokens < model.context_limit
    return dataclasses.replace(
        model,
        name=name or model.name,
        slots=model.slots * max_verifiers,
        kv_tokens=model.kv_tokens if has_tight_memory else 0,
    )


class _Moves:
    """How often a request had to go elsewhere, and how long it may go on trying."""

    def __init__(self, limits: MoveLimits) -> None:
        self._limits = limits
        self._num_lost = 0
        self._delivered = 0
        self._present = ""
        self._since_s: float | None = None
        self.avoided: set[str] = set()

    def at(self, address: str) -> None:
        """The verifier that is tried now."""
        self._present = address

    async def note(self, error: WhiFlashError, record: InFlightRecord) -> None:
        """Another attempt, after a wait that grows while nothing comes. Raises `error` where there
        shall be none."""
        now_s = time.monotonic()
        if self._since_s is None or record.num_delivered > self._delivered:
            self._delivered, self._num_lost, self._since_s = record.num_delivered, 0, now_s
            self.avoided.clear()
        is_refused = self._present in self.avoided and not record.has_begun
        self.avoided.add(self._present)
        self._num_lost += isinstance(error, VerifierLostError)
        patience_s = self._limits.resume_s if record.has_begun else self._limits.begin_s
        is_late = now_s - self._since_s > patience_s
        is_full = isinstance(error, QueueFullError) and is_refused
        if self._num_lost > self._limits.max_idle_moves or is_late or is_full:
            raise error
        logger.info("a request goes on at another verifier: %s", error)
        await asyncio.sleep(WAIT_S * len(self.avoided))
