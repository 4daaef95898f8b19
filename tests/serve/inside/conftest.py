"""One Ray cluster with logical GPUs, and our application on it, for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray import serve

from services import app
from services.config import ClusterSettings
from whiflash.testing.plain_cluster import host_drafter, write_cluster_config
from whiflash.testing.toy_drafters import write_toy_eagle3

HTTP_PORT, GRPC_PORT = 8000, 9000


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    # Ray starts a worker for each CPU at once; all our replicas together ask for less than one.
    ray.init(
        address="local", num_cpus=2, num_gpus=4, include_dashboard=False,
        _node_ip_address="127.0.0.1",
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cluster_config(tmp_path_factory.mktemp("ray"), verifiers=2, max_verifiers=3)


@pytest.fixture(scope="session")
def config(base: Path) -> Path:
    return with_drafter(base, 0, "goodput")


@pytest.fixture(scope="session")
def changed(base: Path) -> Path:
    """Other weights of the hosted drafter, and another policy."""
    return with_drafter(base, 1, "static:arm=eagle3")


def with_drafter(base: Path, seed: int, policy: str) -> Path:
    eagle3 = write_toy_eagle3(base.parent / f"eagle3{seed}", seed=seed)
    path = host_drafter(base, f"eagle3:{eagle3},boundaries=1+2,tree=chain", policy)
    text = path.read_text(encoding="utf-8").replace("http_port = 0", f"http_port = {HTTP_PORT}")
    path.write_text(text.replace("grpc_port = 0", f"grpc_port = {GRPC_PORT}"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def application(ray_cluster: None, config: Path) -> Iterator[None]:
    settings = ClusterSettings.load(config)
    serve.start(http_options=app.http_options(settings), grpc_options=app.grpc_options(settings))
    serve.run(app.build({"config": str(config)}), name=app.APP, route_prefix="/")
    yield
    serve.shutdown()


@pytest.fixture
def target(application: None) -> str:
    return f"127.0.0.1:{GRPC_PORT}"


@pytest.fixture
def url(application: None) -> str:
    return f"http://127.0.0.1:{HTTP_PORT}"
