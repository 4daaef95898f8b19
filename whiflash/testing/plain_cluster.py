"""Verifiers and gateways as plain processes over the toy model, which tests may kill."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import TracebackType
from typing import Self

from whiflash.core.ports import free_ports
from whiflash.testing.http_server import write_chat_toy
from whiflash.testing.role_process import Process

ROUTER = "router"

CONFIG = """
model = "{model}"
dtype = "float64"
memory = "64MiB"
max_batch = 8
max_draft_nodes = 8
store = "memory"
drafters = ["retrieval"]
{engine}
[server]
served_name = "toy"
http_port = 0
grpc_port = 0
drain_s = 5.0
log_level = "warning"
[cluster]
trusts_network = true
[cluster.verifier]
cpus = 0.1
min_replicas = {verifiers}
max_replicas = {max_verifiers}
drain_s = 5.0
upscale_s = 1.0
downscale_s = 4.0
[cluster.gateway]
cpus = 0.1
start_s = 120.0
"""


def write_cluster_config(
    folder: Path, verifiers: int = 2, max_verifiers: int | None = None, engine: str = ""
) -> Path:
    """A configuration over a toy model, both in `folder`."""
    model = write_chat_toy(folder / "toy")
    path = folder / "cluster.toml"
    most = max_verifiers or verifiers
    path.write_text(
        CONFIG.format(model=model, verifiers=verifiers, max_verifiers=most, engine=engine),
        encoding="utf-8",
    )
    return path


HOSTED = """
[cluster.drafters.{kind}]
cpus = 0.1
dtype = "float64"
[cluster.router]
cpus = 0.1
"""


def host_drafter(config: Path, drafter: str, policy: str = "goodput") -> Path:
    """`config` with one drafter and the router in processes of their own; a changed copy of it
    beside it, so that both may be taken. Drafts are waited for: the toy is verified faster than
    anything can be asked of another process. drafter: as in `drafters`."""
    kind = drafter.partition(":")[0]
    text = config.read_text(encoding="utf-8")
    text = text.replace('["retrieval"]', f'["retrieval", "{drafter}"]\npolicy = "{policy}"')
    text = text.replace("[cluster.gateway]", "hold_ms = 1000\n[cluster.gateway]")
    number = len(list(config.parent.glob("*.toml")))
    path = config.with_name(f"hosted{number}.toml")
    path.write_text(text + HOSTED.format(kind=kind), encoding="utf-8")
    return path


class PlainCluster:
    """`count` verifiers behind one gateway, from `config`, and the drafters and router that it has
    elsewhere; a context manager. is_fresh: the first process of each is a new interpreter."""

    def __init__(self, config: Path, count: int, is_fresh: bool = False) -> None:
        self._config = config
        self._is_fresh = is_fresh
        table = tomllib.loads(config.read_text(encoding="utf-8"))["cluster"]
        names = [*table.get("drafters", ()), *([ROUTER] if ROUTER in table else [])]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.parts = {name: self._part(name, config) for name in names}
        self.verifiers = [self._verifier(0) for _ in range(count)]
        self.gateway: Process | None = None
        self._replaced: list[Process] = []

    def __enter__(self) -> Self:
        try:
            for process in (*self.parts.values(), *self.verifiers):
                process.wait_ready()
            self.start_gateway()
            self._is_fresh = False
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def start_gateway(self) -> None:
        """A new one, over the addresses of all verifiers; the last one may be used as well."""
        addresses = ",".join(verifier.said["address"] for verifier in self.verifiers)
        arguments = ["gateway", "--config", str(self._config), "--verifiers", addresses]
        if self.gateway is not None:
            self._replaced.append(self.gateway)
        self.gateway = Process(arguments, is_fresh=self._is_fresh)
        self.gateway.wait_ready()

    def revive(self, number: int) -> None:
        """A new verifier at the address of one that was killed."""
        old = self.verifiers[number]
        self._replaced.append(old)
        port = int(old.said["address"].rpartition(":")[2])
        self.verifiers[number] = self._verifier(port)
        self.verifiers[number].wait_ready()

    def replace(self, part: str, config: Path) -> None:
        """Ends a drafter (by its kind) or the router; another one takes its address, as `config`
        says."""
        old = self.parts[part]
        self._replaced.append(old)
        assert old.stop() == 0, f"{part} did not end well"
        self.parts[part] = self._part(part, config)
        self.parts[part].wait_ready()

    def _part(self, part: str, config: Path) -> Process:
        role = [ROUTER] if part == ROUTER else ["drafter", "--kind", part]
        arguments = [*role, "--config", str(config), "--port", str(self._ports[part])]
        return Process(arguments, is_fresh=self._is_fresh)

    @property
    def grpc_target(self) -> str:
        assert self.gateway is not None
        return f"127.0.0.1:{self.gateway.said['grpc_port']}"

    @property
    def url(self) -> str:
        assert self.gateway is not None
        return f"http://127.0.0.1:{self.gateway.said['http_port']}"

    def _verifier(self, port: int) -> Process:
        arguments = ["verifier", "--config", str(self._config), "--port", str(port)]
        places = {part: f"127.0.0.1:{at}" for part, at in self._ports.items()}
        router = places.pop(ROUTER, "")
        drafters = ",".join(f"{kind}={address}" for kind, address in places.items())
        arguments += ["--drafters", drafters, "--router", router]
        return Process(arguments, is_fresh=self._is_fresh)

    def _close(self) -> None:
        gateways = [self.gateway] if self.gateway is not None else []
        for process in (*gateways, *self.verifiers, *self.parts.values(), *self._replaced):
            process.close()
