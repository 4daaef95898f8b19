"""The wheel, built from a copy: setuptools writes into the tree that it builds from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_wheel(source: Path, folder: Path) -> Path:
    """The wheel in `folder`, of the packages that lie in `source`, by this tree's pyproject.
    Raises RuntimeError with what setuptools said."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=source, check=False, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"no wheel: {done.stderr[-2000:]}")
    (wheel,) = folder.glob("*.whl")
    return wheel
