"""One validated configuration of a whole cluster."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from whiflash.config import Bytes, EngineConfig, ServerConfig, read_environment
from whiflash.core.errors import ConfigError
from whiflash.core.wording import explain
from whiflash.drafters.registry import parse_specs
from whiflash.rpc.access import Access
from whiflash.rpc.policy_versions import check_remote
from whiflash.serving.auth import Authenticator
from whiflash.serving.keys import NEW_KEY, environment_key, read_key_file

NODE = "node"
RETRIEVAL = "retrieval"
"""Runs beside the verifier's index, always."""

CLUSTER_TABLE, SERVER_TABLE = "cluster", "server"


class ScaledTable(BaseModel):
    """Replicas that the load may add: what each may use, and how many there are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: float = Field(default=1.0, ge=0, description="CPUs of a replica, as Ray counts them")
    gpus: float = Field(default=0.0, ge=0, description="GPUs of a replica, or a fraction of one")
    min_replicas: int = Field(default=1, ge=1, description="always there")
    max_replicas: int = Field(default=1, ge=1, description="beyond min_replicas the load decides")
    upscale_s: float = Field(default=5.0, ge=0, description="how long a need must last")
    downscale_s: float = Field(default=120.0, ge=0, description="how long one must idle")

    def check(self, name: str) -> None:
        """Raises ValueError naming the table."""
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"cluster.{name}.max_replicas {self.max_replicas} is below min_replicas "
                f"{self.min_replicas}; raise the first or lower the second"
            )


class VerifierTable(ScaledTable):
    """Verifiers."""

    drain_s: float = Field(default=30.0, ge=0, description="what turns get before they are moved")
    hold_ms: float | None = Field(
        default=None, ge=0,
        description="most that a step waits for drafts made elsewhere; default one verify forward",
    )  # fmt: skip


class DrafterTable(ScaledTable):
    """A drafter in processes of its own, of which each verifier keeps to one. dtype: of its
    weights and of the taps that are kept for it; with the target's own (see `whiflash plan`) it
    drafts as it would in the verifier."""

    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    memory: Bytes = Field(default=2**30, ge=2**20, description="bytes for the K/V of its sequences")


class RouterTable(BaseModel):
    """The policy and its learner in a process of its own, which learns from all verifiers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: float = Field(default=0.5, ge=0, description="CPUs of the replica, as Ray counts them")
    gpus: float = Field(default=0.0, ge=0, description="GPUs of the replica, or a fraction of one")


class GatewayTable(BaseModel):
    """Replicas of the gateway."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpus: float = Field(default=0.5, ge=0, description="CPUs of a replica, as Ray counts them")
    replicas: int = Field(default=1, ge=1, description="they share nothing")
    max_calls: int = Field(default=1024, ge=1, description="open calls of a replica")
    start_s: float = Field(default=600.0, gt=0, description="how long the first verifier may take")


class ClusterTable(BaseModel):
    """host: where verifiers listen: 127.0.0.1, or `node` for the address that Ray knows the
    machine by, which needs token_file (a file with 16 characters or more). trusts_network: serve
    without keys although Serve's gRPC port can be reached from other machines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Literal["127.0.0.1", "node"] = "127.0.0.1"
    token_file: Path | None = None
    trusts_network: bool = False
    verifier: VerifierTable = VerifierTable()
    gateway: GatewayTable = GatewayTable()
    drafters: dict[str, DrafterTable] = {}
    router: RouterTable | None = None


class ClusterSettings(BaseModel):
    """What `whiflash up --config FILE` reads: the engine's options, [server] and [cluster]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineConfig
    server: ServerConfig
    cluster: ClusterTable

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        verifier, engine = self.cluster.verifier, self.engine
        verifier.check("verifier")
        for kind, table in self.cluster.drafters.items():
            table.check(f"drafters.{kind}")
        if engine.device.startswith("cuda") != (verifier.gpus > 0):
            raise ValueError(
                f"device {engine.device} and cluster.verifier.gpus {verifier.gpus:g} exclude each "
                "other; name a GPU device and a share of a GPU, or neither"
            )
        if verifier.max_replicas > 1 and engine.store != "memory" and "://" not in engine.store:
            raise ValueError(
                f"store {engine.store} belongs to one process and cluster.verifier.max_replicas "
                f"is {verifier.max_replicas}; take a redis:// URL, or memory"
            )
        kinds = {spec.kind for spec in parse_specs(engine.arms)}
        for kind in self.cluster.drafters:
            if kind not in kinds or kind == RETRIEVAL:
                raise ValueError(
                    f"cluster.drafters.{kind} names no neural drafter of drafters "
                    f"({', '.join(engine.drafters)}); add it there, or leave it out here"
                )
        if self.cluster.router is not None:
            check_remote(engine.policy)
        if self.cluster.host == NODE and self.cluster.token_file is None:
            raise ValueError("cluster.host node needs cluster.token_file: others can reach it")
        return self

    @classmethod
    def load(cls, path: Path | str) -> ClusterSettings:
        """Reads a TOML or JSON file. Raises ConfigError in one line."""
        file = Path(path)
        table = _read(file)
        try:
            own, server = (_popped(table, name) for name in (CLUSTER_TABLE, SERVER_TABLE))
            return cls(
                engine=EngineConfig.of(**table),
                server=ServerConfig.of(**server),
                cluster=_cluster(own),
            )
        except ValidationError as error:
            told = explain(error.errors(include_url=False), cls)
            raise ConfigError(f"config {file}: {told}") from None
        except ConfigError as error:
            raise ConfigError(f"config {file}: {error}") from None

    @classmethod
    def of(cls, table: dict[str, Any]) -> ClusterSettings:
        """From `as_table`, in another process."""
        return cls(
            engine=EngineConfig.of(**table["engine"]),
            server=ServerConfig.of(**table["server"]),
            cluster=ClusterTable(**table["cluster"]),
        )

    def as_table(self) -> dict[str, Any]:
        """JSON-able; holds no secret."""
        table: dict[str, Any] = self.model_dump(mode="json", exclude_unset=True)
        return table

    def fixed_table(self) -> dict[str, Any]:
        """`as_table` without what changes while everything runs: which weights hosted drafters
        have, and which policy a hosted router runs."""
        table = self.as_table()
        if self.cluster.drafters:
            specs = zip(parse_specs(self.engine.arms), self.engine.arms, strict=True)
            table["engine"]["drafters"] = [
                spec.kind if spec.kind in self.cluster.drafters else text for spec, text in specs
            ]
        if self.cluster.router is not None:
            table["engine"].pop("policy", None)
        return table

    def drafter_of(self, kind: str) -> str:
        """The hosted drafter of that kind, as it is named in `drafters`."""
        [text] = [t for t in self.engine.arms if parse_specs([t])[0].kind == kind]
        return text

    def access(self) -> Access:
        """What gateways and verifiers show each other. Raises ConfigError."""
        file = self.cluster.token_file
        if file is None:
            return Access()
        try:
            return Access(file.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise ConfigError(f"cannot read {file} ({error.strerror})") from None

    def auth(self) -> Authenticator:
        """Who may call. Raises ConfigError."""
        secret = read_environment("WHIFLASH_API_KEY")
        if self.server.keys is not None and secret is not None:
            raise ConfigError("WHIFLASH_API_KEY and keys exclude each other; use one of them")
        if self.server.keys is not None:
            return Authenticator(read_key_file(self.server.keys))
        if secret is not None:
            return Authenticator((environment_key(secret),))
        if self.server.is_public or not self.cluster.trusts_network:
            raise ConfigError(
                "Ray Serve's gRPC port can be reached from other machines and there are no keys: "
                f'make one with `{NEW_KEY} --file keys.toml` and set keys = "keys.toml" in '
                "[server], or set trusts_network = true in [cluster] where nobody else can reach "
                "this machine"
            )
        return Authenticator()


def _read(file: Path) -> dict[str, Any]:
    if file.suffix not in (".toml", ".json"):
        raise ConfigError(f"config {file}: name it .toml or .json")
    try:
        text = file.read_text(encoding="utf-8")
        table = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"config {file}: cannot read it ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"config {file}: broken {file.suffix[1:].upper()}: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"config {file}: it must hold one table of options")
    return table


def _popped(table: dict[str, Any], name: str) -> dict[str, Any]:
    part = table.pop(name, {})
    if not isinstance(part, dict):
        raise ConfigError(f"{name} must be a table of options, got {part!r}")
    return part


def _cluster(table: dict[str, Any]) -> ClusterTable:
    try:
        return ClusterTable(**table)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        raise ConfigError(explain(errors, ClusterTable, f"{CLUSTER_TABLE}.")) from None
