"""A real HTTP server on 127.0.0.1 in a thread, and a toy model that it can serve."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn
from pydantic_core import from_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whiflash.engine.engine import Engine
from whiflash.serving.auth import Authenticator
from whiflash.serving.embedded import EmbeddedBackend
from whiflash.serving.generation import GenerationService, ServiceLimits
from whiflash.serving.openai.app import create_app
from whiflash.serving.openai.edge import HttpLimits
from whiflash.testing.toy import write_toy

T = TypeVar("T")
START_S, STOP_S = 60.0, 30.0
MAX_RECEIVED = 1000

TOY_TEMPLATE = """\
{%- if tools %}tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}
{% endif -%}
{%- for message in messages %}{{ message.role[0] }}:{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.arguments | tojson }}
{%- endfor %}
{% endfor %}{% if add_generation_prompt %}a:{% endif %}"""
"""Short, since the toy's context holds 512 characters; with the marker of readable calls."""


def write_chat_toy(folder: Path) -> Path:
    """The toy model with a chat template in `folder`, returned."""
    write_toy(folder)
    (folder / "chat_template.jinja").write_text(TOY_TEMPLATE, encoding="utf-8")
    return folder


@dataclass(frozen=True, slots=True)
class Received:
    """A request that arrived; `body` is None where there was none, or no JSON object."""

    path: str
    body: dict[str, Any] | None


class _Recorder:
    """Writes down what arrives, up to MAX_RECEIVED requests."""

    def __init__(self, app: ASGIApp, received: list[Received]) -> None:
        self._app = app
        self._received = received

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def receive_noted() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                self._note(scope["path"], bytes(body + message.get("body", b"")))
            elif message["type"] == "http.request":
                body.extend(message.get("body", b""))
            return message

        await self._app(scope, receive_noted, send)

    def _note(self, path: str, body: bytes) -> None:
        if len(self._received) >= MAX_RECEIVED:
            return
        try:
            value = from_json(body)
        except ValueError:
            value = None
        self._received.append(Received(path, value if isinstance(value, dict) else None))


class HttpServer:
    """Serves `engine` (not owned) while the context is open. `service` and `backend` may only be
    used through `call`, on the server's own event loop.

    received: requests with a body, in the order of their arrival."""

    def __init__(
        self,
        engine: Engine,
        name: str = "",
        auth: Authenticator | None = None,
        service_limits: ServiceLimits | None = None,
        http_limits: HttpLimits | None = None,
    ) -> None:
        self.backend = EmbeddedBackend(engine, name)
        self.backend.warm_up()
        self.service = GenerationService(self.backend, auth, service_limits)
        self.app = create_app(self.service, self.backend.tokenizer, http_limits)
        self.received: list[Received] = []
        config = uvicorn.Config(
            _Recorder(self.app, self.received),
            "127.0.0.1",
            0,
            log_level="warning",
            lifespan="off",
            access_log=False,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="test-http-server", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the server's event loop and waits for it."""
        assert self._loop is not None, "only while the server is up"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_up.wait(START_S):
            raise TimeoutError("the test server did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S)
        assert not self._thread.is_alive(), "the test server did not stop"
        self.service.check_integrity()

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.01)
        self._is_up.set()
        await serving
