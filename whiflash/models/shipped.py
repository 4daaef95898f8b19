"""Drafters and routers that come with WhiFlash, found by the fingerprint of their target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from whiflash.core.errors import ModelError

SHIPPED = "shipped"
"""Stands where a router file is named: the one that comes with WhiFlash for the target."""

# Two levels of a chain: on two CPU cores a third costs what it brings, and a tree gains nothing
# over plain decoding.
_OPTIONS = {"eagle3": ",tree=chain,depth=2"}


@dataclass(frozen=True, slots=True)
class ShippedDrafter:
    """arm: eagle3 or dflash. On held-out prompts, greedy chains: accepted_length, and by position
    the share of drafts that was accepted up to there."""

    arm: str
    folder: Path
    accepted_length: float
    positions: tuple[float, ...]

    def record(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "folder": str(self.folder)}


def checkpoints_folder() -> Path:
    """Where they lie in the installed package: a folder per target, in it one per arm."""
    return Path(str(files("whiflash"))) / "checkpoints"


def shipped_drafters(fingerprint: str, root: Path | None = None) -> tuple[ShippedDrafter, ...]:
    """Those for this target, by arm. Raises ModelError on a damaged folder."""
    found = []
    for path in sorted((root or checkpoints_folder()).glob("*/*/training.json")):
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            if table["target"]["fingerprint"] == fingerprint:
                known = table["acceptance"]["all"]
                length, positions = float(known["accepted_length"]), map(float, known["positions"])
                arm = str(table["arm"])
                found.append(ShippedDrafter(arm, path.parent, length, tuple(positions)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path} is damaged; install WhiFlash again") from error
    return tuple(found)


def shipped_folders(fingerprint: str) -> Mapping[str, Path]:
    """Folders by kind of drafter; a tree over DFlash's marginals reads DFlash's. Raises
    ModelError."""
    folders = {drafter.arm: drafter.folder for drafter in shipped_drafters(fingerprint)}
    if "dflash" in folders:
        folders["ddtree"] = folders["dflash"]
    return folders


def shipped_arms(model: str) -> tuple[str, ...]:
    """Arms that are shipped for a built-in model, known before it is loaded."""
    folder = checkpoints_folder() / model
    return tuple(sorted(path.parent.name for path in folder.glob("*/training.json")))


def shipped_specs(model: str) -> tuple[str, ...]:
    """The same arms as --drafter takes them, with the options that pay for such small targets."""
    return tuple(arm + _OPTIONS.get(arm, "") for arm in shipped_arms(model))


def shipped_router(fingerprint: str, root: Path | None = None) -> Path | None:
    """The router file for this target, beside its drafters. Raises ModelError on a damaged one."""
    for path in sorted((root or checkpoints_folder()).glob("*/router*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                target = (file.metadata() or {}).get("target")
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is damaged; install WhiFlash again") from error
        if target == fingerprint:
            return path
    return None
