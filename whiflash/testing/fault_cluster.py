"""A whole cluster without Ray, every part a process of its own that a test may kill: Redis, hosted
drafters and router, two verifiers, a gateway. Links may run through relays that spoil them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from whiflash import __version__
from whiflash.core.ports import free_ports
from whiflash.rpc.channels import open_channel
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.v1 import verifier_service_pb2 as pb
from whiflash.rpc.v1.verifier_service_pb2_grpc import VerifierServiceStub
from whiflash.serving.remote.server import MAX_MESSAGE_BYTES
from whiflash.testing.http_server import write_chat_toy
from whiflash.testing.redis_server import RedisServer
from whiflash.testing.relay import FaultyRelay
from whiflash.testing.role_process import Process
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3
from whiflash.testing.waiting import wait_for

ARMS = ("retrieval", "eagle3", "dflash")
HOSTED = ("eagle3", "dflash")
NUM_VERIFIERS = 2
HEALTH_S = 60.0
STORE_KEYS = {"WHIFLASH_STORE_KEYS": "k1:" + "a" * 64}

CONFIG = """
model = "{model}"
dtype = "float64"
memory = "64MiB"
max_batch = 32
max_draft_nodes = 8
store = "unix://{socket}"
drafters = ["retrieval", "eagle3:{eagle3},boundaries=1+2,tree=chain", "dflash:{dflash}"]
[server]
served_name = "toy"
http_port = {http_port}
grpc_port = {grpc_port}
drain_s = 5.0
log_level = "error"
[cluster]
trusts_network = true
[cluster.verifier]
max_replicas = 2
drain_s = 2.0
hold_ms = 100.0
[cluster.gateway]
start_s = 120.0
[cluster.drafters.eagle3]
dtype = "float64"
[cluster.drafters.dflash]
dtype = "float64"
[cluster.router]
"""


class FaultCluster:
    """A context manager. Parts by name: redis, eagle3, dflash, router, verifier0, verifier1,
    gateway; `relays` by the link that they are on: drafter, router, verifier."""

    def __init__(self, folder: Path, has_relays: bool = False) -> None:
        self._has_relays = has_relays
        self._stack = ExitStack()
        self._redis = RedisServer(folder)
        self._processes: dict[str, Process] = {}
        self._loop = RpcLoop()
        self.relays: dict[str, list[FaultyRelay]] = {"drafter": [], "router": [], "verifier": []}
        self.grpc_port, self._http_port = free_ports(2)
        self._places: dict[str, str] = {}
        self._config = folder / "cluster.toml"
        text = CONFIG.format(
            model=write_chat_toy(folder / "toy"), socket=self._redis.socket,
            eagle3=write_toy_eagle3(folder / "e"), dflash=write_toy_dflash(folder / "d"),
            http_port=self._http_port, grpc_port=self.grpc_port,
        )  # fmt: skip
        self._config.write_text(text, encoding="utf-8")

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def __enter__(self) -> Self:
        try:
            self._redis.start()
            self._launch(*HOSTED, "router")
            self._launch(*(f"verifier{number}" for number in range(NUM_VERIFIERS)))
            self._launch("gateway")
            self.wait_healthy()
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

    def _close(self) -> None:
        for process in reversed(self._processes.values()):
            process.close()
        self._redis.stop()
        self._stack.close()
        self._loop.close()

    def kill(self, name: str) -> None:
        """kill -9."""
        if name == "redis":
            self._redis.stop()
        else:
            self._processes[name].kill()

    def stop(self, name: str) -> int:
        """SIGTERM; the exit status after its drain."""
        return self._processes[name].stop()

    def revive(self, name: str) -> None:
        """Another process at the same address."""
        if name == "redis":
            self._redis.start()
            return
        old = self._processes[name]
        port = int(old.said.get("address", ":0").rpartition(":")[2])
        old.close()
        process = self._processes[name] = Process(
            [*self._arguments(name), "--port", str(port)], STORE_KEYS
        )
        process.wait_ready()

    def _launch(self, *names: str) -> None:
        """All at once; returns when all serve."""
        for name in names:
            self._processes[name] = Process(self._arguments(name), STORE_KEYS)
        for name in names:
            process = self._processes[name]
            process.wait_ready()
            if name != "gateway":
                self._places[name] = self._relayed(name, process.said["address"])

    def _relayed(self, name: str, address: str) -> str:
        """Where others reach it."""
        if not self._has_relays:
            return address
        relay = self._stack.enter_context(FaultyRelay(int(address.rpartition(":")[2])))
        link = "drafter" if name in HOSTED else name.rstrip("0123456789")
        self.relays[link].append(relay)
        return relay.target

    def _arguments(self, name: str) -> list[str]:
        config = ["--config", str(self._config)]
        if name in HOSTED:
            return ["drafter", *config, "--kind", name]
        if name.startswith("verifier"):
            drafters = ",".join(f"{kind}={self._places[kind]}" for kind in HOSTED)
            return ["verifier", *config, "--drafters", drafters, "--router", self._places["router"]]
        if name == "router":
            return ["router", *config]
        places = [self._places[f"verifier{number}"] for number in range(NUM_VERIFIERS)]
        return ["gateway", *config, "--verifiers", ",".join(places)]

    def states(self) -> list[dict[str, Any]]:
        """Of each verifier, asked past the relays: `outside` of its plan, load in numbers."""
        names = [f"verifier{number}" for number in range(NUM_VERIFIERS)]
        return [self._loop.run(_state(self._processes[n].said["address"]), 20.0) for n in names]

    def metrics(self) -> dict[str, float]:
        """The gateway's, without labels summed over them."""
        answer = httpx.get(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10)
        found: dict[str, float] = {}
        for line in answer.text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def wait_healthy(self) -> None:
        """All parts are used again. Raises AssertionError."""
        wait_for(self._is_healthy, HEALTH_S, "the cluster did not recover")

    def _is_healthy(self) -> bool:
        try:
            if self.metrics().get('whiflash_verifiers{state="live"}') != NUM_VERIFIERS:
                return False
            outsides = [state["outside"] for state in self.states()]
        except Exception:  # noqa: BLE001 - whatever is not there yet
            return False
        return all(
            outside["router"]["is_up"] and all(d["is_up"] for d in outside["drafters"].values())
            for outside in outsides
        )

    def leaks(self) -> list[str]:
        """What is still held although nothing runs, waited for a while."""
        end_s = time.monotonic() + 20.0
        while (held := self._held()) and time.monotonic() < end_s:
            time.sleep(0.1)
        return held

    def _held(self) -> list[str]:
        held = [
            f"verifier {number}: {what} {state[what]:g}"
            for number, state in enumerate(self.states())
            for what in ("running", "waiting", "kv_bytes")
            if state[what]
        ]
        gauges = ("whiflash_backend_in_flight", "whiflash_requests_in_flight")
        metrics = self.metrics()
        held += [f"gateway: {name}" for name in gauges if metrics.get(name)]
        return held

    def descriptors(self) -> dict[str, int]:
        """Open files and sockets of each process."""
        return {
            name: sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())
            for name, process in self._processes.items()
        }


async def _state(address: str) -> dict[str, Any]:
    import json

    async with open_channel(address, None, MAX_MESSAGE_BYTES) as channel:
        stub: Any = VerifierServiceStub(channel.for_stubs)
        described = await stub.Describe(pb.DescribeRequest(version=__version__), timeout=5)
        plan = json.loads((await stub.Plan(pb.PlanRequest(), timeout=5)).json)
        watch = stub.Watch(pb.WatchRequest(incarnation=described.incarnation), timeout=5)
        load = (await anext(aiter(watch))).load
        watch.cancel()
    return {
        "outside": plan["outside"], "running": load.running, "waiting": load.waiting,
        "kv_bytes": load.kv_bytes,
    }  # fmt: skip
