"""Serial tests are found by the word in their file (tests/parts.py), so it must be there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
HIDDEN = "import pytest\n@getattr(pytest.mark, 'serial')\ndef test_a(): pass\n"
WRITTEN = "import pytest\n@pytest.mark.serial\ndef test_a(): pass\n"


@pytest.mark.parametrize(("body", "status"), [(HIDDEN, 4), (WRITTEN, 5)], ids=["hidden", "written"])
def test_a_serial_test_says_so_in_its_own_file(tmp_path: Path, body: str, status: int) -> None:
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "test_it.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not serial",
         str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert ("write mark.serial" in done.stdout + done.stderr) == (status == 4)
