"""Processes that compute by turns do not spin for long on each other's cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whiflash.core.openmp import BRIEF_SPINS

ROOT = Path(__file__).parents[3]
SPY = """
import importlib, os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Spy())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


@pytest.mark.parametrize(
    "modules",
    [
        ["services.process", "whiflash.serving.remote.hosting"],
        ["services.process", "whiflash.serving.remote.host"],
        ["services.drafter"],
        ["services.verifier"],
        ["whiflash.bench.cluster_suite"],
    ],
)
def test_torch_finds_the_setting_when_it_is_loaded(modules: list[str]) -> None:
    pytest.importorskip("ray")
    name, spins = BRIEF_SPINS
    for own in (None, "7"):
        environment = {key: value for key, value in os.environ.items() if key != name}
        environment |= {} if own is None else {name: own}
        run = subprocess.run(
            [sys.executable, "-c", SPY, *modules],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert run.stdout.split() == [own or spins], run.stderr[-500:]
