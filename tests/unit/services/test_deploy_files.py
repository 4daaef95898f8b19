"""Files of deploy/: they parse, hold to their schemas, and name what exists. No machine with
docker or Kubernetes has run them here; docs/deploy.md says so."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("ray")

from ray.serve.schema import ServeDeploySchema

from services.app import SERVICES
from services.config import ClusterSettings
from services.gateway import Gateway
from whiflash.api.v1 import generation_service_pb2, model_service_pb2
from whiflash.obs.engine_metrics import EngineCollector, EngineState
from whiflash.obs.metrics import ServerMetrics
from whiflash.serving.remote.backend import RemoteBackend
from whiflash.serving.remote.directory import FixedDirectory
from whiflash.serving.remote.metrics import ClusterCollector
from whiflash.serving.remote.pool import VerifierPool
from whiflash.testing.backends import ScriptedBackend

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
GAUGES = ("engine_running", "engine_waiting", "queue_waiting", "kv_bytes", "kv_limit_bytes",
          "goodput_tokens_per_second")  # fmt: skip
METRIC = re.compile(r"\bwhiflash_\w+")
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def known_metrics() -> set[str]:
    """Names of all that a gateway exports."""
    metrics, scripted = ServerMetrics(), ScriptedBackend()
    pool = VerifierPool(FixedDirectory(()))
    backend = RemoteBackend(pool, scripted.model, scripted.tokenizer, scripted.chat)
    state = EngineState(dict.fromkeys(GAUGES, 0.0), {})
    metrics.registry.register(EngineCollector(lambda: state))
    metrics.registry.register(ClusterCollector(pool, backend))
    return {family.name for family in metrics.registry.collect()}


def named_metrics() -> Iterator[tuple[str, str]]:
    """Where, and what."""
    for name in ("prometheus/alerts.yml", "grafana/whiflash.json"):
        text = (DEPLOY / name).read_text(encoding="utf-8")
        for metric in METRIC.findall(text):
            yield name, metric
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for metric in METRIC.findall(text):
        yield "docs/operations.md", metric


def test_alerts_board_and_manual_name_metrics_that_exist() -> None:
    known, unknown = known_metrics(), set()
    for where, metric in named_metrics():
        stem = next((metric.removesuffix(s) for s in SUFFIXES if metric.endswith(s)), metric)
        if not {metric, stem} & known:
            unknown.add((where, metric))
    assert not unknown
    assert len({metric for _, metric in named_metrics()}) > 10


def test_every_alert_says_what_it_means() -> None:
    rules = [rule for group in read(DEPLOY / "prometheus/alerts.yml")["groups"]
             for rule in group["rules"]]  # fmt: skip
    assert len(rules) > 5
    for rule in rules:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_board_fits_the_provisioned_source() -> None:
    board = json.loads((DEPLOY / "grafana/whiflash.json").read_text(encoding="utf-8"))
    source = read(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_compose_services_find_what_they_need() -> None:
    compose = read(ROOT / "docker-compose.yml")
    services = compose["services"]
    assert {"redis", "head", "worker", "deploy", "prometheus", "grafana"} == services.keys()
    for name, service in services.items():
        for other in service.get("depends_on", {}):
            assert other in services, name
        for secret in service.get("secrets", []):
            assert secret in compose["secrets"], name
        for network in service["networks"]:
            assert network in compose["networks"], name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else (
                source in compose["volumes"]
            ), volume  # fmt: skip
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert set(ports) == {"8000:8000", "9000:9000", "127.0.0.1:3000:3000"}
    for private in ("6379", "8265", "10001"):
        assert not any(private in port for port in ports)


def test_scraped_and_provisioned_files_lie_where_compose_mounts_them() -> None:
    prometheus = read(DEPLOY / "prometheus/prometheus.yml")
    for rule in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / Path(rule).name).is_file()


def test_the_rayservice_is_one_that_serve_takes() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kuberay/rayservice.yaml").read_text("utf-8")))
    [service] = [document for document in documents if document["kind"] == "RayService"]
    assert service["apiVersion"] == "ray.io/v1"
    serve = ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    assert serve.applications[0].import_path == "services.app:build"
    assert tuple(serve.grpc_options.grpc_servicer_functions) == SERVICES
    pod = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
    names = {port["name"] for port in pod["containers"][0]["ports"]}
    assert {"serve-http", "serve-grpc"} <= names
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_serve_deploys_what_up_would(tmp_path: Path) -> None:
    config = ServeDeploySchema.model_validate(read(DEPLOY / "config/serve.yaml"))
    settings = ClusterSettings.load(DEPLOY / "config/cluster.toml")
    assert config.applications[0].import_path == "services.app:build"
    assert tuple(config.grpc_options.grpc_servicer_functions) == SERVICES
    assert config.http_options.port == settings.server.http_port
    assert config.grpc_options.port == settings.server.grpc_port


def test_example_configurations_are_valid(tmp_path: Path) -> None:
    for path in (DEPLOY / "config/cluster.toml", DEPLOY / "local/cluster.toml"):
        ClusterSettings.load(path)
    documents = yaml.safe_load_all((DEPLOY / "kuberay/rayservice.yaml").read_text("utf-8"))
    [config] = [document for document in documents if document["kind"] == "ConfigMap"]
    inside = tmp_path / "cluster.toml"
    inside.write_text(config["data"]["cluster.toml"], encoding="utf-8")
    settings = ClusterSettings.load(inside)
    grace_s = settings.cluster.verifier.drain_s
    assert grace_s + 10 < 90, "terminationGracePeriodSeconds"


def test_the_gateway_has_a_method_for_every_public_call() -> None:
    """Serve takes a gRPC call to the deployment's method of its name."""
    cls = Gateway.func_or_class
    for module, service in (
        (generation_service_pb2, "GenerationService"),
        (model_service_pb2, "ModelService"),
    ):
        for method in module.DESCRIPTOR.services_by_name[service].methods:
            assert callable(getattr(cls, method.name)), method.name


def test_the_install_script_is_sound_shell() -> None:
    subprocess.run(["sh", "-n", DEPLOY / "image/install.sh"], check=True)
    dockerfile = (DEPLOY / "image/Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (.+)$", dockerfile, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
