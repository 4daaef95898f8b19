"""A real server on 127.0.0.1 over the float64 toy model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from whiflash import Engine
from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.testing.http_server import HttpServer, write_chat_toy


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_toy(tmp_path_factory.mktemp("openai") / "toy")


@pytest.fixture(scope="module")
def engine(toy_folder: Path) -> Iterator[Engine]:
    with Engine(
        model=str(toy_folder), memory="64MiB", max_batch=8, constraints=GrammarCompiler
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[HttpServer]:
    with HttpServer(engine, "toy") as running:
        yield running


@pytest.fixture(scope="module")
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Of the server in this process, or of the one that `--base-url` names."""
    url = request.config.getoption("base_url", None)
    url = url or request.getfixturevalue("server").url
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        yield client
