"""kill -9 of Ray's GCS under load."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from whiflash.testing.namespaces import NOT_ALLOWED, can_isolate, run_on_ray

LIMIT_S = 600


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
def test_turns_go_on_without_the_gcs(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if not can_isolate():
        pytest.skip(NOT_ALLOWED)
    command = [sys.executable, "-m", "whiflash.testing.gcs_loss", str(tmp_path)]
    run = run_on_ray(command, tmp_path, LIMIT_S)
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["during"] == found["after"] == found["turns"] > 0, run.stderr[-4000:]
