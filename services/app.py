"""The graph of deployments from one configuration: `serve run services.app:build config=FILE`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ray.serve import Application, Deployment
from ray.serve.config import (
    AutoscalingConfig,
    AutoscalingPolicy,
    HTTPOptions,
    RequestRouterConfig,
    gRPCOptions,
)

from services.config import ClusterSettings, ScaledTable, VerifierTable
from services.drafter import DrafterHost
from services.gateway import Gateway
from services.names import drafter_name
from services.router import RouterHost
from services.scaling import DRAFTER_TARGETS, VERIFIER_TARGETS
from services.verifier import Verifier
from whiflash import __version__
from whiflash.core.errors import ConfigError

APP = "whiflash"
SERVICES = (
    "whiflash.api.v1.generation_service_pb2_grpc.add_GenerationServiceServicer_to_server",
    "whiflash.api.v1.model_service_pb2_grpc.add_ModelServiceServicer_to_server",
    "whiflash.api.v1.trajectory_service_pb2_grpc.add_TrajectoryServiceServicer_to_server",
)
METRICS_S = 1.0
STOP_MARGIN_S = 10.0
VERIFIER_CALLS = 100
"""Calls over Serve's handles, which carry no tokens."""


def build(arguments: dict[str, Any]) -> Application:
    """For `serve run`, `serve build` and `serve deploy`; `config` names the file. Raises
    ConfigError."""
    path = arguments.get("config")
    if not isinstance(path, str):
        raise ConfigError("name the configuration: config=FILE")
    return graph(ClusterSettings.load(path))


def graph(settings: ClusterSettings) -> Application:
    """Gateways over verifiers. Everything that can be wrong without loading the model is found
    here. Deployed anew, only what changed is touched: other weights of a drafter and another policy
    are taken over in place. Raises ConfigError."""
    settings.auth()
    settings.access()
    table, gateway = settings.fixed_table(), settings.cluster.gateway
    drafters = {kind: _drafter(settings, kind) for kind in settings.cluster.drafters}
    options = _verifier_options(settings.cluster.verifier)
    verifiers = _versioned(Verifier.options(**options), table).bind(
        table, drafters, _router(settings)
    )
    front = Gateway.options(
        num_replicas=gateway.replicas,
        ray_actor_options={"num_cpus": gateway.cpus},
        max_ongoing_requests=gateway.max_calls,
        graceful_shutdown_timeout_s=settings.server.drain_s + STOP_MARGIN_S,
    )
    return _versioned(front, table).bind(table, verifiers)


def _versioned(deployment: Deployment, table: dict[str, Any]) -> Deployment:
    """Serve takes two deployments for one while their versions are equal; without one it would
    start every replica anew."""
    text = json.dumps([__version__, table], sort_keys=True)
    version = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return deployment.options(version=version, _internal=True)


def http_options(settings: ClusterSettings) -> HTTPOptions:
    """Where OpenAI HTTP is served; fixed for the life of a Serve instance."""
    return HTTPOptions(host=settings.server.host, port=settings.server.http_port)


def grpc_options(settings: ClusterSettings) -> gRPCOptions:
    """The same for gRPC, whose host Serve does not let one choose."""
    return gRPCOptions(port=settings.server.grpc_port, grpc_servicer_functions=list(SERVICES))


def _verifier_options(table: VerifierTable) -> dict[str, Any]:
    return {
        "ray_actor_options": {"num_cpus": table.cpus, "num_gpus": table.gpus},
        "max_ongoing_requests": VERIFIER_CALLS,
        "graceful_shutdown_timeout_s": table.drain_s + STOP_MARGIN_S,
        "health_check_period_s": 2.0,
        "request_router_config": _tells_addresses(),
        **_replicas(table, VERIFIER_TARGETS),
    }


def _tells_addresses() -> RequestRouterConfig:
    name: Any = "services.address_router:AddressRouter"  # Serve's own annotation forgets names
    return RequestRouterConfig(request_router_class=name)


def _drafter(settings: ClusterSettings, kind: str) -> Application:
    table, fixed = settings.cluster.drafters[kind], settings.fixed_table()
    host = DrafterHost.options(
        name=drafter_name(kind),
        ray_actor_options={"num_cpus": table.cpus, "num_gpus": table.gpus},
        max_ongoing_requests=VERIFIER_CALLS,
        request_router_config=_tells_addresses(),
        user_config={"drafter": settings.drafter_of(kind)},
        **_replicas(table, DRAFTER_TARGETS),
    )
    return _versioned(host, fixed).bind(fixed, kind, settings.drafter_of(kind))


def _router(settings: ClusterSettings) -> Application | None:
    table, fixed = settings.cluster.router, settings.fixed_table()
    if table is None:
        return None
    host = RouterHost.options(
        num_replicas=1,
        ray_actor_options={"num_cpus": table.cpus, "num_gpus": table.gpus},
        max_ongoing_requests=VERIFIER_CALLS,
        request_router_config=_tells_addresses(),
        user_config={"policy": settings.engine.policy},
    )
    return _versioned(host, fixed).bind(fixed)


def _replicas(table: ScaledTable, targets: Mapping[str, float]) -> dict[str, Any]:
    """Fixed at min_replicas, or scaled by services.scaling."""
    if table.max_replicas == table.min_replicas:
        return {"num_replicas": table.min_replicas}
    scaling = AutoscalingConfig(
        min_replicas=table.min_replicas,
        initial_replicas=table.min_replicas,
        max_replicas=table.max_replicas,
        upscale_delay_s=0.0,  # the policy itself waits
        downscale_delay_s=0.0,
        metrics_interval_s=METRICS_S,
        policy=AutoscalingPolicy(
            policy_function="services.scaling:LoadPolicy",
            policy_kwargs={
                "targets": dict(targets),
                "upscale_s": table.upscale_s,
                "downscale_s": table.downscale_s,
            },
        ),
    )
    return {"autoscaling_config": scaling}
