"""`whiflash serve` as a process: started, asked, drained."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from whiflash.testing.http_server import write_chat_toy

START_S, STOP_S = 120, 60
RUN = "from whiflash.cli.main import main; main()"
SECRET = "zq secret words of the prompt"


@dataclass(slots=True)
class Served:
    """A running server; `log` is what it wrote to standard error so far."""

    process: subprocess.Popen[str]
    http_port: int
    grpc_port: int
    said: str
    log_file: Path

    def ask(
        self, method: str, path: str, body: object = None, key: str = ""
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {**headers, "Content-Type": "application/json"})
        return connection.getresponse()

    def log(self) -> list[dict[str, object]]:
        """Every line must be JSON."""
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_toy(tmp_path_factory.mktemp("toy"))


@contextmanager
def serving(folder: Path, place: Path, *options: str, **variables: str) -> Iterator[Served]:
    """`whiflash serve` with the toy on free ports, killed at the end if it still runs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHIFLASH_CACHE": str(folder / "cache"),
                   "WHIFLASH_DATA": str(place / "data"), "PYTHONUNBUFFERED": "1",
                   **variables}  # fmt: skip
    environment.pop("WHIFLASH_API_KEY", None) if "WHIFLASH_API_KEY" not in variables else None
    command = [sys.executable, "-c", RUN, "serve", "--model", str(folder),
               "--dtype", "float64", "--memory", "16MiB", "--http-port", "0", "--grpc-port", "0",
               "--served-name", "toy", *options]  # fmt: skip
    log_file = place / "log"
    with (
        log_file.open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        try:
            said = _until_ready(process)
            ready = next(line for line in map(json.loads, log_file.read_text().splitlines())
                         if line["event"] == "ready")  # fmt: skip
            yield Served(process, ready["http_port"], ready["grpc_port"], said, log_file)
        finally:
            process.kill()


def is_grpc_serving(served: Served) -> bool:
    """Health follows readiness within a fraction of a second."""
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(50):
            found = stub.Check(health_pb2.HealthCheckRequest(), timeout=20).status
            if found == health_pb2.HealthCheckResponse.SERVING:
                return True
            time.sleep(0.1)
    return False


def _until_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:  # ends with the process, if that does not get ready
        said += line
        if line == "ready\n":
            return said
    raise AssertionError(f"the server ended with {process.wait()}: {said}")


def test_it_prints_its_plan_answers_both_ways_logs_no_text_and_drains(
    folder: Path, tmp_path: Path
) -> None:
    with serving(folder, tmp_path) as served:
        for part in ("model  ", "arms  ", "retrieval", "policy  ", "verify_curve_ms", "store"):
            assert part in served.said
        assert "none: this machine only" in served.said
        assert served.ask("GET", "/ready").status == 200
        body = {"model": "toy", "prompt": SECRET, "max_tokens": 12, "temperature": 0}
        answer = json.load(served.ask("POST", "/v1/completions", body))
        completed = answer["usage"]["completion_tokens"]
        assert 0 < completed <= 12
        assert is_grpc_serving(served)
        metrics = served.ask("GET", "/metrics").read().decode()
        assert f'whiflash_tokens_total{{kind="completion"}} {completed}.0' in metrics
        assert "_created" not in metrics

        long = {**body, "max_tokens": 400, "stream": True, "logit_bias": {"2": -100}}
        stream = served.ask("POST", "/v1/completions", long)
        assert stream.readline().startswith(b"data: ")
        served.process.send_signal(signal.SIGTERM)
        rest = stream.read().decode()
        assert rest.rstrip().endswith("data: [DONE]")
        assert served.process.wait(STOP_S) == 0

        log = served.log()
        assert [line["event"] for line in log].count("call") == 2
        assert log[-1]["event"] != "call"
        written = served.log_file.read_text()
        assert SECRET not in written
        assert answer["choices"][0]["text"] not in written


def test_keys_are_asked_for_and_a_second_signal_ends_at_once(folder: Path, tmp_path: Path) -> None:
    key = "k" * 40
    options = ("--drain-s", "1000")
    with serving(folder, tmp_path, *options, WHIFLASH_API_KEY=key) as served:
        body = {"model": "toy", "prompt": "abc", "max_tokens": 3}
        for wrong in ("", "x" * 40):
            refused = served.ask("POST", "/v1/completions", body, wrong)
            assert refused.status == 401
            assert json.load(refused)["error"]["code"] == "invalid_api_key"
        assert served.ask("POST", "/v1/completions", body, key).status == 200
        assert served.ask("GET", "/metrics", key=key).status == 403
        assert served.ask("GET", "/health").status == 200
        assert key not in served.log_file.read_text()

        long = {**body, "max_tokens": 400, "n": 4, "stream": True, "logit_bias": {"2": -100}}
        held = [served.ask("POST", "/v1/completions", long, key) for _ in range(8)]
        served.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(STOP_S) == 0
        assert time.monotonic() - began < 20
        for response in held:
            response.read()
        drained = next(line for line in served.log() if line["event"] == "drained")
        assert drained["all_ended"] is False


RUNS = """{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "abc"}]}
"""


def test_a_running_servers_store_is_kept_through_it(folder: Path, tmp_path: Path) -> None:
    """The verb finds the server by the note in the store that it holds."""
    file = tmp_path / "runs.jsonl"
    file.write_text(RUNS)

    def store(*arguments: str) -> str:
        environment = {**os.environ, "WHIFLASH_DATA": str(tmp_path / "data"),
                       "WHIFLASH_CACHE": str(folder / "cache")}  # fmt: skip
        environment.pop("WHIFLASH_API_KEY", None)
        done = subprocess.run(
            [sys.executable, "-c", RUN, "store", *arguments],
            env=environment, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    with serving(folder, tmp_path) as served:
        assert "trajectories" in served.said
        assert json.loads(store("import", str(file), "--json"))["turns"] == 1
        assert json.loads(store("import", str(file), "--json"))["known"] == 1
        answer = served.ask(
            "POST", "/v1/completions", {"model": "toy", "prompt": "ab", "max_tokens": 9}
        )
        assert answer.status == 200
        assert sum(one["num_records"] for one in json.loads(store("stats", "--json"))) == 2
        served.process.terminate()
        assert served.process.wait(60) == 0
    assert sum(one["num_records"] for one in json.loads(store("stats", "--json"))) == 2
    store("delete", "--whole-tenant")
    assert not store("export")


def test_a_second_server_keeps_trajectories_in_memory_and_says_so(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    data = str(tmp_path / "data")
    with (
        serving(folder, tmp_path / "one", WHIFLASH_DATA=data),
        serving(folder, tmp_path / "two", WHIFLASH_DATA=data) as second,
    ):
        events = [str(line) for line in second.log()]
        assert any("in memory only" in line and "is being written by" in line for line in events)
