"""The conformance tests of the front ends, unchanged, against a cluster of plain processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whiflash.testing.plain_cluster import PlainCluster

pytestmark = [pytest.mark.slow, pytest.mark.serial]

ROOT = Path(__file__).parents[2]
LIMIT_S = 200


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_openai_http(cluster: PlainCluster) -> None:
    said = run("tests/server/openai/test_openai_http.py", f"--base-url={cluster.url}")
    assert " passed" in said


def test_grpc(cluster: PlainCluster) -> None:
    said = run("tests/server/grpc/test_grpc_generation.py", f"--grpc={cluster.grpc_target}")
    assert " passed" in said
