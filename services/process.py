"""A verifier or a gateway as a plain process, without Ray: python -m services.process ROLE ...

    python -m services.process verifier --config c.toml --port 9101
    python -m services.process gateway --config c.toml --verifiers 127.0.0.1:9101,127.0.0.1:9102

Each prints one line of JSON once it serves, and drains at SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn

from services.config import ClusterSettings
from whiflash.core.errors import ConfigError, EngineClosedError, WhiFlashError
from whiflash.obs.json_logs import configure_logs
from whiflash.serving.grpc.server import GrpcServer
from whiflash.serving.listen import bind
from whiflash.serving.openai.app import create_app
from whiflash.serving.remote.directory import FixedDirectory
from whiflash.serving.remote.gateway import Gateway
from whiflash.serving.remote.host import VerifierHost

WATCH_S = 0.5
CLOSE_S = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after a drain, 1 with one line on standard error."""
    parser = argparse.ArgumentParser(prog="services.process", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    for name in ("verifier", "gateway"):
        role = roles.add_parser(name)
        role.add_argument("--config", required=True)
        role.add_argument("--port", type=int, default=0, help="verifier: its own; 0: a free one")
        role.add_argument("--verifiers", default="", help="gateway: addresses, by commas")
    given = parser.parse_args(arguments)
    try:
        settings = ClusterSettings.load(given.config)
        _refuse_hosted(settings)
        configure_logs(settings.server.log_level.upper())
        if given.role == "verifier":
            _run_verifier(settings, given.port)
        else:
            asyncio.run(_gateway(settings, [a for a in given.verifiers.split(",") if a]))
    except WhiFlashError as error:
        print(f"{given.role}: {error}", file=sys.stderr)
        return 1
    return 0


def _refuse_hosted(settings: ClusterSettings) -> None:
    if settings.cluster.drafters or settings.cluster.router is not None:
        raise ConfigError(
            "plain processes run drafters and policy in the verifier; leave [cluster.drafters] "
            "and [cluster.router] out, or use `whiflash up`"
        )


def _run_verifier(settings: ClusterSettings, port: int) -> None:
    host = VerifierHost(
        settings.engine, settings.server.served_name, "127.0.0.1", port, settings.access()
    )
    try:
        asyncio.run(_verifier(host, settings.cluster.verifier.drain_s))
    finally:
        host.engine.close()


async def _verifier(host: VerifierHost, drain_s: float) -> None:
    stops = _stop_signals()
    _say({"role": "verifier", "address": await host.start()})
    while host.is_sound and not stops.is_set():
        await _wait(stops)
    await host.drain(drain_s if host.is_sound else 0.0)
    was_sound = host.is_sound
    await host.stop()
    if not was_sound:
        raise EngineClosedError("the engine stopped after an internal error; see the log")


async def _gateway(settings: ClusterSettings, verifiers: Sequence[str]) -> None:
    stops, server = _stop_signals(), settings.server
    listener = bind(server.host, server.http_port, "http_port")
    gateway = Gateway(
        settings.engine, server, FixedDirectory(verifiers), settings.auth(),
        max_verifiers=max(1, len(verifiers)), access=settings.access(),
    )  # fmt: skip
    await gateway.start(settings.cluster.gateway.start_s)
    grpc = GrpcServer(gateway.service, server.host, server.grpc_port)
    await grpc.start()
    http = _HttpServer(_http_config(gateway))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    _say({"role": "gateway", "http_port": listener.getsockname()[1], "grpc_port": grpc.port})
    while not stops.is_set() and not serving.done():
        await _wait(stops)
    await gateway.service.drain(server.drain_s)
    http.should_exit = True
    await asyncio.gather(serving, grpc.stop(CLOSE_S))
    await gateway.stop()


class _HttpServer(uvicorn.Server):
    """Leaves signals to us: uvicorn would close connections before the drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _http_config(gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(gateway.service, gateway.backend.tokenizer),
        log_config=None, access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
    )  # fmt: skip


def _stop_signals() -> asyncio.Event:
    stops = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stops.set)
    return stops


async def _wait(stops: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(WATCH_S):
            await stops.wait()
    except TimeoutError:
        return


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
