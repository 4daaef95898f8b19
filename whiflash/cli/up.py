"""`whiflash up`: the cluster on Ray Serve, from one configuration file."""

from __future__ import annotations

import importlib.util
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from whiflash.core.errors import ConfigError

Address = Annotated[
    str | None,
    typer.Option("--address", help="Ray cluster to join, as `auto` [one in this machine]"),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="leave it running on the cluster of --address")
]


def up(
    config: Annotated[
        Path, typer.Option("--config", help="TOML or JSON: engine, [server], [cluster]")
    ],
    address: Address = None,
    detach: Detach = False,
) -> None:
    """Serve the model from a cluster: gateways and verifiers as Ray Serve deployments.

    Without --address Ray is started on this machine, and stopped again at SIGTERM or Ctrl-C.
    Needs the extra `cluster` (pip install 'whiflash[cluster]').
    """
    require_ray()
    if detach and address is None:
        raise ConfigError("--detach needs --address: a Ray started here ends with this command")
    from services.config import ClusterSettings

    settings = ClusterSettings.load(config)
    settings.auth()
    settings.access()
    from services.cluster import run

    def say_ready() -> None:
        server = settings.server
        typer.echo(f"OpenAI HTTP  http://{server.host}:{server.http_port}/v1")
        typer.echo(f"gRPC         port {server.grpc_port} of every address of this machine")
        typer.echo("ready")

    run(settings, address, None if detach else wait_for_the_end, say_ready)


def require_ray() -> None:
    """Raises ConfigError where the extra is missing."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "a cluster needs ray, which is not installed; "
            "install it with: pip install 'whiflash[cluster]'"
        )


def wait_for_the_end() -> None:
    """Until SIGTERM or Ctrl-C."""
    ends = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ends.set())
    ends.wait()
