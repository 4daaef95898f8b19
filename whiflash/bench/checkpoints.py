"""Checkpoints of neural drafters for a suite: those named, else those shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whiflash.core.errors import ConfigError
from whiflash.drafters.registry import parse_specs
from whiflash.models.files import ModelFiles
from whiflash.models.shipped import shipped_drafters
from whiflash.models.sources import resolve


def neural_folders(model: str, drafters: Sequence[str]) -> Mapping[str, str]:
    """Folder by kind (eagle3, dflash). drafters: as on the command line (eagle3:DIR), which win
    over shipped ones. Raises ConfigError on other kinds or a missing folder."""
    folders: dict[str, str] = {}
    for spec in parse_specs(drafters):
        if spec.kind not in ("eagle3", "dflash") or not spec.place or spec.options:
            raise ConfigError(
                "--drafter names checkpoints here: eagle3:FOLDER or dflash:FOLDER, without options"
            )
        folders[spec.kind] = spec.place
    fingerprint = ModelFiles.at(resolve(model)).fingerprint()
    for shipped in shipped_drafters(fingerprint):
        folders.setdefault(shipped.arm, str(shipped.folder))
    return folders


def require_folder(folders: Mapping[str, str], kind: str, model: str) -> str:
    """Raises ConfigError where there is no drafter of that kind."""
    if kind not in folders:
        raise ConfigError(
            f"no {kind} drafter is shipped for {model}; give --drafter {kind}:FOLDER "
            f"(`whiflash train {kind}` makes one)"
        )
    return folders[kind]
