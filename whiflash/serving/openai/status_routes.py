"""Models, tokens, health, readiness, metrics."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response

from whiflash.obs.metrics import CONTENT_TYPE
from whiflash.serving.call import Prompt, TextPrompt
from whiflash.serving.openai.completion_body import TokenizeBody
from whiflash.serving.openai.convert import chat_prompt
from whiflash.serving.openai.edge import Edge
from whiflash.serving.openai.sse import json_answer, until_gone


class StatusRoutes:
    """All that generates nothing."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        self._edge.caller(request)
        return json_answer({"object": "list", "data": [self._model()]})

    async def model(self, request: Request, model_id: str) -> Response:
        """GET /v1/models/{model_id}."""
        self._edge.caller(request)
        self._edge.check_model(model_id)
        return json_answer(self._model())

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: the exact ids of a text, or of the prompt that a chat becomes."""
        caller = self._edge.caller(request)
        body = await self._edge.read(request, TokenizeBody)
        if body.model is not None:
            self._edge.check_model(body.model)
        prompt: Prompt = (
            TextPrompt(body.prompt or "")
            if body.messages is None
            else chat_prompt(body.messages, body)
        )
        context = self._edge.context(request, caller)
        prepared = await until_gone(request, self._edge.service.prepare(prompt, context))
        return json_answer(
            {
                "tokens": list(prepared.token_ids),
                "count": len(prepared.token_ids),
                "max_model_len": self._edge.service.model.context_limit,
            }
        )

    async def health(self) -> Response:
        """GET /health: the process answers, and with what."""
        model = self._edge.service.model
        return json_answer({"status": "ok", "model": model.name, "arms": list(model.arms)})

    async def ready(self) -> Response:
        """GET /ready: 200 where new calls are welcome, 503 before warm-up and while draining."""
        is_ready = self._edge.service.is_ready
        return json_answer({"ready": is_ready}, 200 if is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics: Prometheus text, with scope `debug`."""
        text = self._edge.service.metrics_text(self._edge.caller(request))
        return Response(text, media_type=CONTENT_TYPE)

    def _model(self) -> dict[str, Any]:
        model = self._edge.service.model
        return {
            "id": model.name,
            "object": "model",
            "created": model.created_s,
            "owned_by": "whiflash",
            "max_model_len": model.context_limit,
        }
