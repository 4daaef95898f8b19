"""The same tests against a server that runs already: pytest tests/server/openai/test_openai_http.py
--base-url http://127.0.0.1:8000, pytest tests/server/grpc/test_grpc_generation.py --grpc
127.0.0.1:9000. It must serve the toy model (deploy: services, `testing.plain_cluster`)."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--base-url", help="OpenAI HTTP of a running server, without /v1")
    parser.addoption("--grpc", help="host:port of a running server")
