"""Unmodified clients on the real model: tool loops with real tools, and structured answers.

A second turn reuses the first one's prefix, and drafts are verified in it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whiflash import Engine
from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.serving.grpc.server import GrpcServer
from whiflash.testing.http_server import HttpServer

HERE = Path(__file__).parent
AGENTS = Path(__file__).parents[3] / "docs" / "agents"
RECORDED = Path(__file__).parents[2] / "data" / "openai_requests"
TOOL_LOOPS = (
    "openai_tools",
    "openai_tools_streamed",
    "pydantic_ai_tools",
    "pydantic_ai_tools_streamed",
    "langchain_tools",
    "langchain_tools_streamed",
)
OTHERS = (
    "openai_forced",
    "openai_structured",
    "openai_everything",
    "pydantic_ai_structured",
    "langchain_structured",
)
QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "PYTHONWARNINGS": "error::DeprecationWarning:__main__",
}

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def scenarios() -> ModuleType:
    os.environ.update(QUIET)
    spec = importlib.util.spec_from_file_location("client_scenarios", HERE / "scenarios.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {*module.TOOL_LOOPS} == {*TOOL_LOOPS}
    assert {*module.OTHERS} == {*OTHERS}
    return module


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(constraints=GrammarCompiler) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[HttpServer]:
    with HttpServer(engine, "smollm2-135m") as running:
        yield running


class Turns:
    """What the engine did in each user turn of a scenario."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = self._state()
        self.turns: list[dict[str, int]] = []

    def end(self) -> None:
        now = self._state()
        self.turns.append({name: now[name] - self._before[name] for name in now})
        self._before = now

    def _state(self) -> dict[str, int]:
        core = self._engine.core
        rounds = core.counters.describe()["arm_rounds"]
        drafted = sum(count for arm, count in rounds.items() if not arm.startswith("none"))
        return {"drafted_rounds": drafted, "prefix_hits": core.admission.num_prefix_hits}


@pytest.mark.parametrize("name", TOOL_LOOPS)
def test_tool_loops_work_and_the_second_turn_is_cached_and_drafted(
    engine: Engine, server: HttpServer, scenarios: ModuleType, name: str
) -> None:
    scenarios.reset()
    server.received.clear()
    turns = Turns(engine)
    scenarios.TOOL_LOOPS[name](f"{server.url}/v1", turns.end)
    require_recorded(server, name)
    assert len(turns.turns) == 2
    assert turns.turns[1]["prefix_hits"] > 0
    assert turns.turns[1]["drafted_rounds"] > 0


@pytest.mark.parametrize("name", OTHERS)
def test_structured_answers_and_parameters(
    server: HttpServer, engine: Engine, scenarios: ModuleType, name: str
) -> None:
    server.received.clear()
    turns = Turns(engine)
    scenarios.OTHERS[name](f"{server.url}/v1", turns.end)
    require_recorded(server, name)
    assert turns.turns


def require_recorded(server: HttpServer, name: str) -> None:
    """Requests of the scenario that just ran are those that the fixtures hold; else record them
    anew: python tests/e2e/clients/record.py"""
    recorded = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["requests"]
    sent = [{"path": r.path, "body": r.body} for r in server.received if r.body is not None]
    assert fields_of(sent) == fields_of(recorded)


def fields_of(requests: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    return {(request["path"], *sorted(request["body"])) for request in requests}


@pytest.fixture(scope="module")
def grpc_target(server: HttpServer) -> Iterator[str]:
    grpc = GrpcServer(server.service, port=0)
    server.call(grpc.start())
    yield f"127.0.0.1:{grpc.port}"
    server.call(grpc.stop())


@pytest.mark.parametrize("script", sorted(path.stem for path in AGENTS.glob("with_*.py")))
def test_the_documented_agents_run(
    engine: Engine, server: HttpServer, grpc_target: str, script: str
) -> None:
    environment = {
        **os.environ,
        **QUIET,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "none",
        "NO_PROXY": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
    }
    turns = Turns(engine)
    run = subprocess.run(
        [
            sys.executable,
            AGENTS / f"{script}.py",
            *([grpc_target] if script == "with_grpc" else []),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    turns.end()
    assert run.returncode == 0, run.stderr
    assert re.search(r"booked in room Red on Wednesday", run.stdout)
    assert re.search(r"booked in room Blue on Monday", run.stdout)
    assert re.search(r"[1-9]\d* cached|'cache_read': [1-9]", run.stdout)
    assert turns.turns[0]["drafted_rounds"] > 0
