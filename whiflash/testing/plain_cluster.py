"""Verifiers and gateways as plain processes over the toy model, which tests may kill."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whiflash.testing.http_server import write_chat_toy

START_S, STOP_S = 120.0, 30.0
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


class Process:
    """One role. `said` is the line that it prints once it serves. more: of its environment."""

    def __init__(self, arguments: list[str], more: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "services.process", *arguments],
            stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
            env={**os.environ, "OMP_NUM_THREADS": "1", "WHIFLASH_THREADS": "1", **(more or {})},
        )  # fmt: skip
        self.said: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Raises TimeoutError, or RuntimeError if it ends instead."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(START_S):
                raise TimeoutError("a process of the test cluster did not start")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with status {self._process.wait()}")
        self.said = json.loads(line)

    def kill(self) -> None:
        """SIGKILL: it can do nothing about it."""
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, and its exit status after the drain."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


class PlainCluster:
    """`count` verifiers behind one gateway, from `config`, and the drafters and router that it has
    elsewhere; a context manager."""

    def __init__(self, config: Path, count: int) -> None:
        self._config = config
        table = tomllib.loads(config.read_text(encoding="utf-8"))["cluster"]
        names = [*table.get("drafters", ()), *([ROUTER] if ROUTER in table else [])]
        self.parts = {name: self._part(name, config, 0) for name in names}
        for part in self.parts.values():
            part.wait_ready()
        self.verifiers = [self._verifier(0) for _ in range(count)]
        self.gateway: Process | None = None
        self._replaced: list[Process] = []

    def __enter__(self) -> Self:
        try:
            for verifier in self.verifiers:
                verifier.wait_ready()
            self.start_gateway()
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
        self.gateway = Process(arguments)
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
        port = int(old.said["address"].rpartition(":")[2])
        self.parts[part] = self._part(part, config, port)
        self.parts[part].wait_ready()

    def _part(self, part: str, config: Path, port: int) -> Process:
        role = [ROUTER] if part == ROUTER else ["drafter", "--kind", part]
        return Process([*role, "--config", str(config), "--port", str(port)])

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
        places = {part: process.said["address"] for part, process in self.parts.items()}
        router = places.pop(ROUTER, "")
        drafters = ",".join(f"{kind}={address}" for kind, address in places.items())
        return Process([*arguments, "--drafters", drafters, "--router", router])

    def _close(self) -> None:
        gateways = [self.gateway] if self.gateway is not None else []
        for process in (*gateways, *self.verifiers, *self.parts.values(), *self._replaced):
            process.close()
