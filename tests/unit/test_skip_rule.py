"""Under WHIFLASH_TEST_ALL=1 a skip other than `gpu` fails (tests/conftest.py)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

CASES = {
    "skip mark": "@pytest.mark.skip(reason='why')\ndef test_a(): pass",
    "skip call": "def test_a(): pytest.skip('why')",
    "skip in fixture": "@pytest.fixture\ndef f(): pytest.skip('why')\ndef test_a(f): pass",
    "module skip": "pytest.skip('why', allow_module_level=True)",
    "missing import": "pytest.importorskip('no_such_module_here')",
}


LEFT_OUT = """
import pytest

@pytest.mark.gpu
def test_gpu():
    assert __import__("torch").cuda.is_available()

@pytest.mark.xfail(strict=True)
def test_expected():
    assert False

def test_ok():
    pass
"""


def run_pytest(folder: Path, test_all: str) -> str:
    """Output of a run over all files of the folder."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider",
         "--continue-on-collection-errors", str(folder)],
        env={**os.environ, "WHIFLASH_TEST_ALL": test_all, "PYTEST_ADDOPTS": ""},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    return tmp_path


def test_a_skip_fails(folder: Path) -> None:
    for name, body in CASES.items():
        file = folder / f"test_{name.replace(' ', '_')}.py"
        file.write_text(f"import pytest\n{body}\n")
    output = run_pytest(folder, "1")
    for name in CASES:
        assert f"test_{name.replace(' ', '_')}.py" in output
    assert "1 failed, 4 errors" in output.splitlines()[-1]
    assert "was skipped under WHIFLASH_TEST_ALL=1: " in output
    assert f"{len(CASES)} skipped" in run_pytest(folder, "0").splitlines()[-1]


def test_gpu_and_expected_failures_may_be_left_out(folder: Path) -> None:
    (folder / "test_left_out.py").write_text(LEFT_OUT)
    closing = run_pytest(folder, "1").splitlines()[-1]
    assert not re.search(r"\b(failed|errors?)\b", closing)
    assert "1 xfailed" in closing
