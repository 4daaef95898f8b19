"""Lints the protos and holds api/v1 to what was published: python protos/buf.py [--check].

buf (pinned in package.json) is installed into protos/node_modules on first use. Without --check
a compatible change is published: it is written to published.binpb, and from then on kept.
Without npm it says so and passes, unless WHIFLASH_TEST_ALL=1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
PUBLISHED = PROTOS / "published.binpb"
BUF = PROTOS / "node_modules" / ".bin" / "buf"
_PUBLIC = ("--path", "whiflash/api")


def main(arguments: list[str]) -> int:
    """0, or 1 on a lint error or an incompatible or unpublished change."""
    if not _is_installed():
        return _without_npm()
    if _fails("lint") or (
        PUBLISHED.exists() and _fails("breaking", *_PUBLIC, "--against", PUBLISHED)
    ):
        return 1
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / PUBLISHED.name
        if _fails("build", *_PUBLIC, "--exclude-source-info", "-o", image):
            return 1
        return _publish(image.read_bytes(), is_check=arguments == ["--check"])


def _is_installed() -> bool:
    """Installs buf where it is missing and npm is there."""
    lock = PROTOS / "package-lock.json"
    stamp = PROTOS / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= lock.stat().st_mtime:
        return True
    npm = shutil.which("npm")
    if npm is None:
        return False
    subprocess.run([npm, "ci", "--no-audit", "--no-fund", "--silent"], cwd=PROTOS, check=True)
    stamp.touch()
    return True


def _without_npm() -> int:
    must_run = os.environ.get("WHIFLASH_TEST_ALL") == "1"
    what = "make it available" if must_run else "the protos are neither linted nor compared"
    print(f"protos: npm is not installed; {what}", file=sys.stderr)
    return int(must_run)


def _fails(*arguments: str | Path) -> bool:
    return subprocess.run([BUF, *arguments], cwd=PROTOS, check=False).returncode != 0


def _publish(image: bytes, *, is_check: bool) -> int:
    if PUBLISHED.exists() and PUBLISHED.read_bytes() == image:
        return 0
    if is_check:
        print("protos/published.binpb lacks the latest fields; run make fix", file=sys.stderr)
        return 1
    PUBLISHED.write_bytes(image)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
