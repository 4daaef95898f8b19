"""The HTTP front end as one ASGI app."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from whiflash import __version__
from whiflash.core.errors import WhiFlashError
from whiflash.core.protocols import Tokenizer
from whiflash.serving.generation import GenerationService
from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.completion_body import CompletionBody, TokenizeBody
from whiflash.serving.openai.edge import Edge, HttpLimits
from whiflash.serving.openai.envelope import Envelope
from whiflash.serving.openai.generate_routes import GenerateRoutes
from whiflash.serving.openai.problems import ROUTE_ERRORS, Problem
from whiflash.serving.openai.schema import body_of, describe_bodies
from whiflash.serving.openai.sse import problem_response, told
from whiflash.serving.openai.status_routes import StatusRoutes


def create_app(
    service: GenerationService,
    tokenizer: Tokenizer,
    limits: HttpLimits | None = None,
) -> FastAPI:
    """OpenAI's interface in front of `service`; run it on the service's event loop.

    tokenizer: the backend's, for the texts of single tokens.
    """
    edge = Edge(service, tokenizer, limits or HttpLimits())
    app = FastAPI(title="WhiFlash", version=__version__, docs_url=None, redoc_url=None)
    _add_routes(app, edge)
    app.add_exception_handler(Problem, _tell)
    app.add_exception_handler(WhiFlashError, _tell)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_middleware(Envelope)
    describe_bodies(app, (ChatBody, CompletionBody, TokenizeBody))
    return app


def _add_routes(app: FastAPI, edge: Edge) -> None:
    generate, status = GenerateRoutes(edge), StatusRoutes(edge)
    app.post("/v1/chat/completions", openapi_extra=body_of(ChatBody))(generate.chat)
    app.post("/v1/completions", openapi_extra=body_of(CompletionBody))(generate.complete)
    app.post("/tokenize", openapi_extra=body_of(TokenizeBody))(status.tokenize)
    app.get("/v1/models")(status.models)
    app.get("/v1/models/{model_id:path}")(status.model)
    app.get("/health")(status.health)
    app.get("/ready")(status.ready)
    app.get("/metrics")(status.metrics)


async def _tell(_request: Request, error: Exception) -> Response:
    return problem_response(told(error))


async def _tell_http(_request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths, wrong methods."""
    assert isinstance(error, HTTPException), "registered for it"
    message, code = ROUTE_ERRORS.get(error.status_code, (str(error.detail), None))
    response = problem_response(Problem(error.status_code, message, code=code))
    response.headers.update(error.headers or {})
    return response
