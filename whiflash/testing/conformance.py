"""The tests of the front ends, unchanged, against a server that runs already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HTTP_TESTS = "tests/server/openai/test_openai_http.py"
GRPC_TESTS = "tests/server/grpc/test_grpc_generation.py"
LIMIT_S = 240


def run_conformance(url: str, grpc_target: str, *options: str) -> str:
    """What pytest said. It must serve the toy model as `toy`. url: without /v1; options: pytest's,
    to leave tests out. Raises AssertionError if one failed or none ran."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider",
         HTTP_TESTS, GRPC_TESTS, f"--base-url={url}", f"--grpc={grpc_target}", *options],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-500:]
    assert " passed" in done.stdout
    return done.stdout
