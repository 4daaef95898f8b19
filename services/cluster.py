"""Starts the application on Ray Serve, and reads how it does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before ray is imported

import ray
from ray import serve

from services import app
from services.config import ClusterSettings
from whiflash.core.errors import NotFoundError

STATUS_S = 30.0
LOCAL = "127.0.0.1"


def run(
    settings: ClusterSettings,
    address: str | None,
    wait: Callable[[], None] | None,
    on_ready: Callable[[], None],
) -> None:
    """Deploys on the Ray cluster at `address`, or on one of this machine that ends with this
    process. `wait` returns when it is to be taken down; without one it is left running."""
    if address is None:
        ray.init(include_dashboard=False, _node_ip_address=LOCAL)
    else:
        ray.init(address=address)
    try:
        serve.start(
            http_options=app.http_options(settings), grpc_options=app.grpc_options(settings)
        )
        serve.run(app.graph(settings), name=app.APP, route_prefix="/")
        on_ready()
        if wait is not None:
            wait()
            serve.shutdown()
    finally:
        ray.shutdown()


def read_status(address: str) -> dict[str, Any]:
    """JSON-able. Raises NotFoundError where there is no cluster, or nothing of ours on it."""
    try:
        ray.init(address=address, log_to_driver=False)
    except ConnectionError:
        raise NotFoundError(
            f"no Ray cluster answers at {address}; start one with `whiflash up`"
        ) from None
    try:
        applications = serve.status().applications
        if app.APP not in applications:
            raise NotFoundError(
                f"the Ray cluster at {address} runs no {app.APP}; start it with `whiflash up`"
            )
        return _described(applications[app.APP])
    finally:
        ray.shutdown()


def _described(application: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {}
    if application.status.value == "RUNNING":
        handle = serve.get_app_handle(app.APP)
        plan = handle.status.remote().result(timeout_s=STATUS_S)
    return {
        "status": str(application.status.value),
        "message": application.message,
        "deployments": {
            name: {
                "status": str(entry.status.value),
                "message": entry.message,
                "replicas": {str(state): n for state, n in entry.replica_states.items()},
            }
            for name, entry in application.deployments.items()
        },
        "cluster": plan.get("cluster", {}),
        "outside": plan.get("outside", {}),
        "arms": plan.get("arms", []),
        "policy": plan.get("policy", ""),
    }
