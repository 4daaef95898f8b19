"""`whiflash serve`: OpenAI HTTP and gRPC in one process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options
from whiflash.cli.plan import plan_lines
from whiflash.cli.store.address import forget_address, note_address
from whiflash.cli.store.default import with_default_store
from whiflash.config import EngineConfig, ServerConfig, read_environment
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine
    from whiflash.serving.auth import Authenticator
    from whiflash.serving.telemetry import Telemetry

Host = Annotated[str | None, typer.Option("--host", help="address [127.0.0.1]")]
HttpPort = Annotated[int | None, typer.Option("--http-port", help="OpenAI HTTP [8000]")]
GrpcPort = Annotated[int | None, typer.Option("--grpc-port", help="gRPC [9000]")]
Keys = Annotated[
    Path | None, typer.Option("--keys", help="file of API keys, made with `whiflash keys`")
]
ServedName = Annotated[
    str | None, typer.Option("--served-name", help="what clients call the model [its own name]")
]
DrainS = Annotated[
    float | None, typer.Option("--drain-s", help="seconds that open calls get at the end [30]")
]
Tracing = Annotated[str | None, typer.Option("--tracing", help="off, or otel for OTLP spans [off]")]
LogLevel = Annotated[str | None, typer.Option("--log-level", help="debug, info, warning, error")]


def serve(
    model: options.Model = None,
    host: Host = None,
    http_port: HttpPort = None,
    grpc_port: GrpcPort = None,
    keys: Keys = None,
    served_name: ServedName = None,
    drain_s: DrainS = None,
    log_level: LogLevel = None,
    tracing: Tracing = None,
    drafter: options.Drafter = None,
    policy: options.Policy = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
    store: options.Store = None,
    redis: options.Redis = None,
    assume_noeviction: options.NoEviction = None,
    config: options.Config = None,
) -> None:
    """Serve the model to OpenAI and gRPC clients until SIGTERM or Ctrl-C.

    Without keys only this machine is served. A key is made by
    `whiflash keys new --id alice --tenant acme --file keys.toml` and read with --keys keys.toml,
    or it is put into WHIFLASH_API_KEY; clients send it as their API key.
    A configuration file holds the engine's options and, in a table [server], those of the server.
    What it learns from agent runs it keeps in the user's data folder (`whiflash store stats`).
    Logs are JSON lines on standard error, without any text of prompts or answers.
    """
    settings = options.engine_config(
        config, model=model, drafters=drafter, policy=policy, memory=memory,
        dtype=dtype, device=device, chat_template=chat_template,
        store=options.store_of(store, redis), assume_noeviction=assume_noeviction,
    )  # fmt: skip
    given = _given(
        host=host, http_port=http_port, grpc_port=grpc_port, keys=keys, served_name=served_name,
        drain_s=drain_s, log_level=log_level, tracing=tracing,
    )  # fmt: skip
    server = ServerConfig.load(config, **given) if config else ServerConfig.of(**given)
    run_server(settings, server)


def run_server(settings: EngineConfig, server: ServerConfig) -> None:
    """Everything that can be wrong is found before the model is loaded. Raises ConfigError,
    ModelError, or EngineClosedError if the engine dies while serving."""
    _require_serving_packages()
    from prometheus_client import disable_created_metrics

    from whiflash.chat.constraints.compiler import GrammarCompiler
    from whiflash.engine.engine import Engine
    from whiflash.obs.json_logs import configure_logs
    from whiflash.serving.listen import bind, check_free

    configure_logs(server.log_level.upper())
    # A second series per counter that nobody reads.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    auth, telemetry = _auth(server), _telemetry(server)
    check_free(server.host, server.grpc_port, "--grpc-port")
    with (
        closing(bind(server.host, server.http_port, "--http-port")) as http_socket,
        Engine(with_default_store(settings), constraints=GrammarCompiler) as engine,
    ):
        typer.echo("\n".join(plan_lines(engine.plan())))
        asyncio.run(_serve(engine, server, auth, telemetry, http_socket))


async def _serve(
    engine: Engine,
    config: ServerConfig,
    auth: Authenticator,
    telemetry: Telemetry,
    http_socket: socket.socket,
) -> None:
    from whiflash.serving.embedded import EmbeddedBackend
    from whiflash.serving.generation import GenerationService, ServiceLimits
    from whiflash.serving.grpc.server import GrpcServer
    from whiflash.serving.server import Server

    backend = EmbeddedBackend(engine, config.served_name)
    limits = ServiceLimits(config.max_waiting, config.max_tenant_waiting, config.queued_s)
    service = GenerationService(backend, auth, limits, telemetry)

    place = engine.store.place

    def say_ready(http_port: int, grpc_port: int) -> None:
        if place is not None:
            note_address(place, config.host, grpc_port)
        typer.echo("\n".join(_addresses(config, backend.model.name, auth, http_port, grpc_port)))

    grpc = GrpcServer(service, config.host, config.grpc_port, desk=backend.desk())
    server = Server(service, backend, http_socket, grpc, config.drain_s, say_ready)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    try:
        await server.run()
    finally:
        if place is not None:
            forget_address(place)


def _addresses(
    config: ServerConfig, model: str, auth: Authenticator, http_port: int, grpc_port: int
) -> Iterator[str]:
    from whiflash.serving.listen import address_text

    yield f"OpenAI HTTP  http://{address_text(config.host, http_port)}/v1  (model {model})"
    yield f"gRPC         {address_text(config.host, grpc_port)}"
    yield f"keys         {'none: this machine only' if auth.is_keyless else 'needed'}"
    yield "ready"


def _auth(config: ServerConfig) -> Authenticator:
    from whiflash.serving.auth import Authenticator
    from whiflash.serving.keys import NEW_KEY, environment_key, read_key_file

    secret = read_environment("WHIFLASH_API_KEY")
    if config.keys is not None and secret is not None:
        raise ConfigError("WHIFLASH_API_KEY and --keys exclude each other; use one of them")
    if config.keys is not None:
        return Authenticator(read_key_file(config.keys))
    if secret is not None:
        return Authenticator((environment_key(secret),))
    if config.is_public:
        raise ConfigError(
            f"--host {config.host} is public and there are no keys; make one with "
            f"`{NEW_KEY} --file keys.toml` and give --keys keys.toml"
        )
    return Authenticator()


def _telemetry(config: ServerConfig) -> Telemetry:
    from whiflash.obs.tracing import span_tracer
    from whiflash.serving.telemetry import Telemetry

    return Telemetry(tracer=span_tracer() if config.tracing == "otel" else None)


def _require_serving_packages() -> None:
    import importlib.util

    for name in ("fastapi", "uvicorn", "grpc", "prometheus_client", "xgrammar"):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"serving needs {name}, which is not installed; "
                "install it with: pip install 'whiflash[serve]'"
            )


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}
