"""The roles of services.process as processes that tests may kill.

A role spends most of its start on loading torch and transformers. So a test's roles are forks of
one process that has them loaded; each is a process of its own all the same, and runs the same
`main`. `is_fresh` starts a new interpreter, as users do."""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from unittest import mock

START_S, STOP_S = 120.0, 30.0
ROOT = Path(__file__).parents[2]
THREADS = {"OMP_NUM_THREADS": "1", "WHIFLASH_THREADS": "1"}
LOADED = (
    __name__,
    "services.process",
    "whiflash.serving.remote.host",
    "whiflash.serving.remote.hosting",
    "whiflash.serving.remote.outside",
    "whiflash.serving.remote.router_hosting",
)


class Process:
    """One role. `said` is the line that it prints once it serves. more: of its environment."""

    def __init__(
        self,
        arguments: Sequence[str],
        more: Mapping[str, str] | None = None,
        is_fresh: bool = False,
    ) -> None:
        environment = {**os.environ, **THREADS, **(more or {})}
        start = _fresh if is_fresh else _Fork
        self._process: subprocess.Popen[bytes] | _Fork = start(arguments, environment)
        self.said: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait_ready(self) -> None:
        """Raises TimeoutError, or RuntimeError if it ends instead."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(START_S):
                raise TimeoutError("a process of the test cluster did not start")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with status {self._process.wait(STOP_S)}")
        self.said = json.loads(line)

    def kill(self) -> None:
        """SIGKILL: it can do nothing about it."""
        self._process.kill()
        self._process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, and its exit status after the drain."""
        self._process.terminate()
        return self._process.wait(STOP_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _fresh(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "services.process", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)


class _Fork(ForkServerProcess):
    """In the place of a subprocess.Popen."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        _start_server()
        self._arguments, self._environment = tuple(arguments), dict(environment)
        reader, self._writer = multiprocessing.Pipe(duplex=False)
        self.start()
        self._writer.close()  # the child's end alone is open: its death is the end of the file
        self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        reader.close()

    def run(self) -> None:
        """In the child."""
        from services.process import main

        tasks = list(Path(f"/proc/{os.getppid()}/task").iterdir())
        assert len(tasks) == 1, "the fork server has threads, whose locks a fork may find taken"
        os.environ.clear()
        os.environ.update(self._environment)
        os.dup2(self._writer.fileno(), sys.stdout.fileno())
        self._writer.close()
        sys.exit(main(self._arguments))

    def wait(self, limit_s: float) -> int:
        """The exit status, below zero for a signal. Raises TimeoutError."""
        self.join(limit_s)
        if self.exitcode is None:
            raise TimeoutError(f"process {self.pid} did not end")
        return self.exitcode

    def poll(self) -> int | None:
        return self.exitcode


@cache
def _start_server() -> None:
    """Once, for the life of the tests' own process, with which it ends."""
    forkserver.set_forkserver_preload(list(LOADED))
    with mock.patch.dict(os.environ, THREADS):  # OpenMP reads it when it is loaded
        forkserver.ensure_running()
