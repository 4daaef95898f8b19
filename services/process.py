"""A part of a cluster as a plain process, without Ray: python -m services.process ROLE ...

    python -m services.process drafter --config c.toml --kind eagle3 --port 9301
    python -m services.process router --config c.toml --port 9201
    python -m services.process verifier --config c.toml --port 9101 \\
        --drafters eagle3=127.0.0.1:9301 --router 127.0.0.1:9201
    python -m services.process gateway --config c.toml --verifiers 127.0.0.1:9101,127.0.0.1:9102

Each prints one line of JSON once it serves, and drains at SIGTERM. Verifiers need not be started
after their drafters and router, and go on when another one stands at its address: a drafter with
other weights, a router with another policy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from whiflash.core.openmp import BRIEF_SPINS

os.environ.setdefault(*BRIEF_SPINS)  # before torch is imported

import uvicorn

from services.config import ClusterSettings
from whiflash.core.errors import ConfigError, EngineClosedError, WhiFlashError
from whiflash.obs.json_logs import configure_logs
from whiflash.serving.grpc.server import GrpcServer
from whiflash.serving.listen import bind
from whiflash.serving.openai.app import create_app
from whiflash.serving.remote.directory import FixedDirectory
from whiflash.serving.remote.gateway import Gateway

if TYPE_CHECKING:  # a role loads what it needs: a gateway starts without torch and transformers
    from whiflash.rpc.drafter_server import DrafterServer
    from whiflash.rpc.router_server import RouterServer
    from whiflash.serving.remote.host import VerifierHost
    from whiflash.serving.remote.outside import RemoteParts

ROLES = ("drafter", "router", "verifier", "gateway")
WATCH_S = 0.5
CLOSE_S = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after a drain, 1 with one line on standard error."""
    parser = argparse.ArgumentParser(prog="services.process", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    for name in ROLES:
        role = roles.add_parser(name)
        role.add_argument("--config", required=True)
        role.add_argument("--port", type=int, default=0, help="but a gateway's; 0: a free one")
        role.add_argument("--verifiers", default="", help="gateway: addresses, by commas")
        role.add_argument("--kind", default="", help="drafter: which one of [cluster.drafters]")
        role.add_argument("--drafters", default="", help="verifier: kind=address, by commas")
        role.add_argument("--router", default="", help="verifier: its address")
    given = parser.parse_args(arguments)
    try:
        settings = ClusterSettings.load(given.config)
        configure_logs(settings.server.log_level.upper())
        _run(settings, given)
    except WhiFlashError as error:
        print(f"{given.role}: {error}", file=sys.stderr)
        return 1
    return 0


def _run(settings: ClusterSettings, given: argparse.Namespace) -> None:
    if given.role == "verifier":
        _run_verifier(settings, given.port, parts_elsewhere(settings, given.drafters, given.router))
    elif given.role == "gateway":
        asyncio.run(_gateway(settings, [a for a in given.verifiers.split(",") if a]))
    elif given.role == "drafter":
        asyncio.run(_part(given.role, _drafter(settings, given.kind, given.port)))
    else:
        asyncio.run(_part(given.role, _router(settings, given.port)))


def parts_elsewhere(settings: ClusterSettings, drafters: str, router: str) -> RemoteParts | None:
    """What a verifier's options say of them; None where there are none. Raises ConfigError where
    they do not go with the configuration."""
    places = dict(part.partition("=")[::2] for part in drafters.split(",") if part)
    wanted, has_router = settings.cluster.drafters.keys(), settings.cluster.router is not None
    if places.keys() != wanted or not all(places.values()):
        raise ConfigError(
            f"--drafters names {', '.join(places) or 'none'} and [cluster.drafters] "
            f"{', '.join(wanted) or 'none'}; give each of these as kind=address"
        )
    if has_router != bool(router):
        raise ConfigError("--router and [cluster.router] go together; give both or neither")
    if not places and not router:
        return None
    from whiflash.serving.remote.outside import RemoteParts

    found = RemoteParts(
        frozenset(places), has_router, settings.access(), settings.engine.device,
        settings.cluster.verifier.hold_ms,
    )  # fmt: skip
    found.locate(places, router or None)
    return found


def _drafter(settings: ClusterSettings, kind: str, port: int) -> DrafterServer:
    table = settings.cluster.drafters.get(kind)
    if table is None:
        raise ConfigError(f"[cluster.drafters] has no {kind!r}; name one of it with --kind")
    from whiflash.serving.remote.hosting import drafter_host

    return drafter_host(
        settings.engine, kind, table.dtype, table.memory, access=settings.access(), port=port
    )


def _router(settings: ClusterSettings, port: int) -> RouterServer:
    from whiflash.serving.remote.router_hosting import router_host

    return router_host(settings.engine, access=settings.access(), port=port)


async def _part(role: str, server: DrafterServer | RouterServer) -> None:
    stops = _stop_signals()
    _say({"role": role, "address": await server.start()})
    await stops.wait()
    if role == "drafter":
        await cast("DrafterServer", server).drain()
    await server.stop(1.0)


def _run_verifier(settings: ClusterSettings, port: int, outside: RemoteParts | None) -> None:
    from whiflash.serving.remote.host import VerifierHost

    host = VerifierHost(
        settings.engine, settings.server.served_name, "127.0.0.1", port, settings.access(), outside
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
    desk = gateway.store.desk
    grpc = GrpcServer(gateway.service, server.host, server.grpc_port, desk=desk)
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
