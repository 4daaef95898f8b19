"""The documented agents say in one line that a server is missing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

AGENTS = Path(__file__).parents[3] / "docs" / "agents"


def ended(script: str, base_url: str, *arguments: str) -> str:
    """The script must fail; what it printed on standard error."""
    environment = {**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none"}
    run = subprocess.run(
        [sys.executable, AGENTS / f"{script}.py", *arguments],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert run.stdout == ""
    return run.stderr


@pytest.mark.parametrize("script", sorted(path.stem for path in AGENTS.glob("with_*.py")))
def test_no_server_is_one_line(script: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        line = ended(script, f"http://{address}/v1", *([address] if "grpc" in script else []))
    assert line.count("\n") == 1
    assert line.startswith("no server at ")
    assert address in line
    assert "start `whiflash serve`" in line


def test_an_address_that_is_not_set_is_one_line() -> None:
    line = ended("with_openai", "")
    assert line.startswith("OPENAI_BASE_URL is not set; start `whiflash serve`")
    assert line.count("\n") == 1
