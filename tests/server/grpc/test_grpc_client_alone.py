"""The client runs where nothing but grpcio and protobuf is installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import venv
from pathlib import Path

from whiflash.testing.backends import ScriptedBackend
from whiflash.testing.grpc_server import GrpcTestServer

ROOT = Path(__file__).parents[3]

SCRIPT = """
import asyncio, sys
before = set(sys.modules)  # a distribution's own sitecustomize among them
from whiflash.client import AsyncClient, Client, Piece

target = sys.argv[1]
with Client(target) as client:
    print(client.generate("x").choices[0].text)
    print("".join(e.text for e in client.stream("x") if isinstance(e, Piece)))

async def main():
    async with AsyncClient(target) as client:
        print((await client.generate("x")).choices[0].text)

asyncio.run(main())
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
names = loaded - set(sys.stdlib_module_names)
print(*sorted(name for name in names if not name.startswith("_")))
"""


def needed(names: tuple[str, ...]) -> set[str]:
    """Distributions and what they require themselves."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            required = importlib.metadata.requires(name) or []
            plain = [line for line in required if "extra ==" not in line]
            todo.extend(re.split(r"[^\w.-]", line)[0] for line in plain)
    return found


def bare_python(folder: Path) -> Path:
    """A fresh environment with grpcio and protobuf, linked from the one that runs the tests."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    for name in needed(("grpcio", "protobuf")):
        for file in importlib.metadata.files(name) or ():
            target = site / file
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(file.locate())).resolve())
    return folder / "bin" / "python"


def test_client_needs_grpcio_and_protobuf_alone(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare")
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with GrpcTestServer(ScriptedBackend("an answer")) as server:
        done = subprocess.run(
            [str(python), "-c", SCRIPT, server.target],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    *answers, modules = done.stdout.splitlines()
    assert answers == ["an answer"] * 3
    own = {"cython_runtime", "google", "grpc", "typing_extensions", "whiflash"}
    assert set(modules.split()) <= own
