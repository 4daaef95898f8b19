"""How deployments are named; apart from them, so that to name one does not load it."""

from __future__ import annotations

GATEWAY, ROUTER, VERIFIER = "gateway", "router", "verifier"


def drafter_name(kind: str) -> str:
    return f"drafter_{kind}"
