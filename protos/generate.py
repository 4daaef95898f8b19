"""Writes the stubs under whiflash/ from the protos: python protos/generate.py [--check].

With --check nothing is written; the exit status is 1 if a stub differs from what its proto gives.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
ROOT = PROTOS.parent
_FIX = "python protos/generate.py"


def main(arguments: list[str]) -> int:
    """0, or 1 where stubs differ or protoc fails."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        if not _compile(fresh):
            return 1
        wanted = _files(fresh)
        if arguments == ["--check"]:
            return _check(wanted)
        _write(wanted)
    return 0


def _compile(out: Path) -> bool:
    """Runs protoc with the plugins of this interpreter's environment."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    plugins = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{plugins}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    command += [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    done = subprocess.run(
        [*command, *sources],
        cwd=PROTOS,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
    return done.returncode == 0


def _files(folder: Path) -> dict[Path, bytes]:
    """Content by path from `folder`. Protos without a service give empty gRPC stubs: left out."""
    found = {path.relative_to(folder): path for path in folder.rglob("*.py*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if _is_wanted(name)}


def _is_wanted(name: Path) -> bool:
    return "_pb2_grpc" not in name.name or "_service_pb2_grpc" in name.name


def _checked_in() -> dict[Path, bytes]:
    folders = {path.parent.relative_to(PROTOS) for path in PROTOS.rglob("*.proto")}
    stubs = [path for folder in folders for path in (ROOT / folder).glob("*_pb2*.py*")]
    return {path.relative_to(ROOT): path.read_bytes() for path in stubs}


def _check(wanted: dict[Path, bytes]) -> int:
    present = _checked_in()
    differing = sorted(
        str(name) for name in {*wanted, *present} if wanted.get(name) != present.get(name)
    )
    for name in differing:
        print(f"{name} does not match its proto; run {_FIX}", file=sys.stderr)
    return int(bool(differing))


def _write(wanted: dict[Path, bytes]) -> None:
    for name in _checked_in().keys() - wanted.keys():
        (ROOT / name).unlink()
    for name, content in wanted.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
