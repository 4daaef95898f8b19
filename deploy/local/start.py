"""Verifiers and a gateway as plain processes on this machine, without Ray:

    python deploy/local/start.py [--config deploy/local/cluster.toml] [--verifiers 2]

Ctrl-C or SIGTERM drains them all. A process that dies ends the whole.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
POLL_S, STOP_S = 0.5, 90.0


def main() -> int:
    """0 after a drain, 1 where a process died."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(HERE / "cluster.toml"))
    parser.add_argument("--verifiers", type=int, default=2)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    running: list[subprocess.Popen[str]] = []
    try:
        verifiers = [_start(["verifier", "--config", given.config]) for _ in range(given.verifiers)]
        running += verifiers
        addresses = ",".join(_said(verifier)["address"] for verifier in verifiers)
        arguments = ["gateway", "--config", given.config, "--verifiers", addresses]
        running.append(_start(arguments))
        print(_said(running[-1]), "\nready", flush=True)
        while all(process.poll() is None for process in running):
            time.sleep(POLL_S)
        return 1
    except (KeyboardInterrupt, ValueError) as error:
        return int(isinstance(error, ValueError))
    finally:
        for process in reversed(running):  # the gateway first: it lets its calls end
            process.terminate()
            process.wait(STOP_S)


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "services.process", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1], start_new_session=True
    )


def _said(process: subprocess.Popen[str]) -> dict[str, str]:
    """The line that it prints once it serves. Raises ValueError if it ended instead."""
    assert process.stdout is not None
    said: dict[str, str] = json.loads(process.stdout.readline())
    return said


if __name__ == "__main__":
    sys.exit(main())
