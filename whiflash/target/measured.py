"""What was measured of a model on this machine, kept for the next start."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numba
import torch
import transformers

import whiflash
from whiflash.core.costs import CostCurve
from whiflash.models.sources import cache_folder
from whiflash.target.assembly import TargetSettings

_CPU_FIELDS = ("model name", "flags", "Features", "CPU part")
_MEASURED_CODE = ("core", "models", "target")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Settings with the reason they were taken, the self-test's verdict, the verify curve."""

    settings: TargetSettings
    reason: str
    exactness: str
    failed: tuple[str, ...]
    curve: CostCurve


def measured_folder() -> Path:
    """Where measurements are kept."""
    return cache_folder() / "measured"


def measurement_path(fingerprint: str, *asked: str) -> Path:
    """The file of a model's measurement here: named after machine, versions, our own code, the
    model's fingerprint and what the caller `asked` for."""
    parts = [*_machine(), whiflash.__version__, _code_digest(), fingerprint, *asked]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return measured_folder() / f"{name}.json"


def _machine() -> tuple[str, ...]:
    versions = (torch.__version__, numba.__version__, transformers.__version__)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    threads = str(torch.get_num_threads())
    return (
        platform.machine(),
        _cpu(),
        gpu,
        threads,
        torch.backends.cpu.get_cpu_capability(),
        *versions,
    )


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {key.strip(): value.strip() for key, value in fields.items()}
    return " ".join(known.get(key, "") for key in _CPU_FIELDS)


@cache
def _code_digest() -> str:
    root = Path(whiflash.__file__).parent
    digest = hashlib.sha256()
    for package in _MEASURED_CODE:
        for path in sorted((root / package).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def read_measurement(path: Path) -> Measurement | None:
    """None if there is none or it cannot be understood."""
    try:
        table = json.loads(path.read_text())
        return Measurement(
            TargetSettings(**table["settings"]),
            str(table["reason"]),
            str(table["exactness"]),
            tuple(table["failed"]),
            CostCurve(tuple((int(count), float(ms)) for count, ms in table["curve"]["points"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_measurement(path: Path, measurement: Measurement) -> str | None:
    """Stores it whole or not at all. Returns a note for the plan if that is not possible, because
    a start must not fail over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(measurement), file, indent=1)
        Path(part).replace(path)
    except OSError as error:
        return f"measurements could not be kept in {path.parent} ({error.strerror})"
    return None
