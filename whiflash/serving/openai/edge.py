"""What all routes share: the service behind them, limits, and who calls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from whiflash.core.errors import NotFoundError
from whiflash.core.protocols import Tokenizer
from whiflash.serving.caller import CallContext, Caller
from whiflash.serving.generation import GenerationService
from whiflash.serving.openai.common_body import CommonBody
from whiflash.serving.openai.reading import MAX_BODY_BYTES, read_body
from whiflash.serving.openai.rules import Body
from whiflash.serving.openai.sse import STALL_LIMIT_S
from whiflash.serving.openai.token_texts import TokenTexts

B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """max_body_bytes: larger bodies are refused. stall_limit_s: a client that takes nothing from
    its stream for so long is dropped."""

    max_body_bytes: int = MAX_BODY_BYTES
    stall_limit_s: float = STALL_LIMIT_S


class Edge:
    """Shared by the routes of one app."""

    def __init__(
        self,
        service: GenerationService,
        tokenizer: Tokenizer,
        limits: HttpLimits,
    ) -> None:
        self.service = service
        self.tokenizer = tokenizer
        self.texts = TokenTexts(tokenizer)
        self.limits = limits

    def caller(self, request: Request) -> Caller:
        """The owner of the key. Raises UnauthenticatedError."""
        return self.service.auth.caller(request.headers.get("authorization"))

    async def read(self, request: Request, kind: type[B]) -> B:
        """The checked body. Raises Problem."""
        return await read_body(request, kind, self.limits.max_body_bytes)

    def context(self, request: Request, caller: Caller, body: Body | None = None) -> CallContext:
        """The call's circumstances. Its deadline is `whiflash.timeout_ms` after its arrival."""
        now_s = time.monotonic()
        deadline_s = None
        if isinstance(body, CommonBody) and body.whiflash and body.whiflash.timeout_ms:
            deadline_s = now_s + body.whiflash.timeout_ms / 1e3
        return CallContext(
            caller,
            request.state.request_id,
            deadline_s,
            request.headers.get("traceparent", ""),
            now_s,
        )

    def check_model(self, name: str) -> None:
        """Raises NotFoundError if another model is served."""
        if name != self.service.model.name:
            raise NotFoundError(
                f"the model {name!r} is not served here; this server has "
                f"{self.service.model.name!r}",
                "model",
            )


def idempotency_key(request: Request) -> str:
    """The client's own key, "" for none."""
    return request.headers.get("idempotency-key", "")
