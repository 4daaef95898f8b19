"""`whiflash status`: what runs in a cluster, and why what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from whiflash.cli import options
from whiflash.cli.up import require_ray


def status(
    address: Annotated[str, typer.Option("--address", help="Ray cluster to ask")] = "auto",
    as_json: options.Json = False,
) -> None:
    """Print deployments, replicas and verifiers of the cluster that `whiflash up` started."""
    require_ray()
    from services.cluster import read_status

    found = read_status(address)
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(status_lines(found)))


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """For a person."""
    yield f"cluster  {found['status']}{_because(found['message'])}"
    for name, entry in found["deployments"].items():
        counts = ", ".join(f"{count} {state.lower()}" for state, count in entry["replicas"].items())
        yield f"{name:<8} {entry['status']}: {counts or 'no replica'}{_because(entry['message'])}"
    cluster = found["cluster"]
    for verifier in cluster.get("verifiers", ()):
        what = verifier["problem"] or (
            f"{verifier['running']} running, {verifier['waiting']} waiting"
        )
        yield f"  {verifier['address']}  {what}"
    yield from _outside(found["outside"])
    if cluster:
        yield f"moves    {cluster['moves']} requests went on at another verifier"


def _outside(outside: Mapping[str, Any]) -> Iterator[str]:
    """As one verifier sees them."""
    for kind, drafter in outside.get("drafters", {}).items():
        state = "up" if drafter["is_up"] else "down: its arm proposes nothing"
        yield f"  drafter {kind} at {drafter['address']}  {state}"
    router = outside.get("router")
    if router:
        state = "up" if router["is_up"] else "down: snapshots decide"
        counts = ", ".join(f"{count} {source}" for source, count in router["decisions"].items())
        yield f"  router at {router['address']}  {state}, decisions: {counts or 'none yet'}"


def _because(message: str) -> str:
    first = message.strip().split("\n")[0]
    return f" ({first})" if first else ""
