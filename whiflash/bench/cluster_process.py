"""Parts of a cluster as processes of their own, for the suite `cluster`."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whiflash.core.errors import WhiFlashError

_START_S, _STOP_S = 300.0, 60.0
_THREADS = ("WHIFLASH_THREADS", "OMP_NUM_THREADS")


@dataclass(slots=True)
class Part:
    """One that serves. start_s: from its start to serving."""

    process: subprocess.Popen[str]
    said: Mapping[str, Any]
    start_s: float

    @property
    def address(self) -> str:
        return str(self.said["address"])

    def stop(self) -> None:
        """Drains it, and waits. Raises WhiFlashError if it does not end well."""
        if self.process.poll() is None:
            self.process.terminate()
            status = self.process.wait(_STOP_S)
            if status != 0:
                raise WhiFlashError(f"a part of the cluster ended with status {status}")


def write_config(folder: Path, name: str, engine: Mapping[str, Any], tables: str = "") -> Path:
    """engine: options at the top of the file; tables: what follows [cluster]."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in engine.items()]
    server = '[server]\nserved_name = "bench"\nhttp_port = 0\ngrpc_port = 0\nlog_level = "error"'
    path = folder / f"{name}.toml"
    text = "\n".join([*lines, server, "[cluster]", "trusts_network = true", tables, ""])
    path.write_text(text, encoding="utf-8")
    return path


class Parts:
    """Started one by one; all that still run are killed at the end of `cluster`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, role: str, config: Path, *options: str, threads: int | None = None) -> Part:
        """Waits until it serves. Raises WhiFlashError if it does not. threads: of its target;
        None leaves that to it."""
        own = {} if threads is None else dict.fromkeys(_THREADS, str(threads))
        began_s = time.perf_counter()
        command = [sys.executable, "-m", "services.process", role, "--config", str(config)]
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, text=True, env={**os.environ, **own}
        )
        self._stack.callback(_end, process)
        return Part(process, _said(process, role), time.perf_counter() - began_s)


@contextmanager
def cluster() -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(stack)


def _said(process: subprocess.Popen[str], role: str) -> Mapping[str, Any]:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(_START_S):
            raise WhiFlashError(f"the {role} did not serve within {_START_S:g} s")
    line = process.stdout.readline()
    if not line:
        raise WhiFlashError(f"the {role} ended with status {process.wait()} before it served")
    said: Mapping[str, Any] = json.loads(line)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
