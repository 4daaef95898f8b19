"""kill -9 of Ray's GCS under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whiflash.testing.namespaces import can_isolate, isolated

ROOT = Path(__file__).parents[2]
LIMIT_S = 600


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
def test_turns_go_on_without_the_gcs(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if not can_isolate():
        pytest.skip("user namespaces are not allowed here")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "whiflash.testing.gcs_loss", str(tmp_path)]
    run = subprocess.run(
        isolated(command), env=environment, cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["during"] == found["after"] == found["turns"] > 0, run.stderr[-4000:]
