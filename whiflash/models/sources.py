"""Models by name: a built-in, a local folder or GGUF file, or a hub name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import platformdirs

from whiflash.config import read_environment
from whiflash.core.errors import ModelError
from whiflash.models import smollm2
from whiflash.models.placement import disk_errors, is_complete

BUILT_INS: dict[str, Callable[[Path], Path]] = {smollm2.NAME: smollm2.install}
_FOLDERS = {smollm2.NAME: smollm2.FOLDER}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "tokenizer*", "*.txt"]
_HUB_IGNORED = ["original/*", "consolidated*", "onnx/*", "*.bin", "*.pth", "*.h5", "*.msgpack"]
_DRAFTER_FILES = ["*.json", "*.safetensors", "pytorch_model*.bin"]
_NO_FILES: list[str] = []


def cache_folder() -> Path:
    """Where converted models and measurements are kept: $WHIFLASH_CACHE or the user's cache."""
    chosen = read_environment("WHIFLASH_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("whiflash"))


def resolve(name: str, *, offline: bool = False) -> Path:
    """The folder (or .gguf file) of the model `name`, fetched on first use unless `offline`.

    A built-in name wins over a folder of the same name (write ./name for the folder).
    Raises ModelError, one line, if there is no such model or it cannot be fetched.
    """
    if name in BUILT_INS:
        return _built_in(name, offline)
    folder = Path(name).expanduser()
    if folder.exists():
        return _local(folder)
    if _HUB_NAME.fullmatch(name):
        return _hub(name, offline, _HUB_FILES, _HUB_IGNORED)
    built_ins = ", ".join(sorted(BUILT_INS))
    raise ModelError(
        f"unknown model {name!r}: no folder, no built-in and not a hub name (owner/model); "
        f"built-ins are: {built_ins}"
    )


def resolve_drafter(name: str, *, offline: bool = False) -> Path:
    """The folder of a drafter's checkpoint: a local folder, or a hub name. Raises ModelError."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder} holds no drafter: config.json is not there")
        return folder.resolve()
    if _HUB_NAME.fullmatch(name):
        return _hub(name, offline, _DRAFTER_FILES, _NO_FILES)
    raise ModelError(f"unknown drafter checkpoint {name!r}: no folder and not a hub name")


def _built_in(name: str, offline: bool) -> Path:
    models = cache_folder() / "models"
    if offline and not is_complete(models / _FOLDERS[name]):
        raise ModelError(
            f"offline: {name} is not in {models} yet; run once without offline mode, or give a "
            "local model folder"
        )
    return BUILT_INS[name](models)


def _local(folder: Path) -> Path:
    if folder.is_file() and folder.suffix == ".gguf":
        return folder.resolve()
    if not folder.is_dir():
        raise ModelError(f"{folder} is no model; give its folder, or a .gguf file")
    known = ("config.json", "adapter_config.json")
    if not any((folder / name).is_file() for name in known) and not any(folder.glob("*.gguf")):
        raise ModelError(f"{folder} holds no model: neither config.json nor a .gguf file is there")
    return folder.resolve()


def _hub(name: str, offline: bool, files: list[str], ignored: list[str]) -> Path:
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        with disk_errors(Path(HF_HUB_CACHE), "HF_HOME"):
            return Path(
                huggingface_hub.snapshot_download(
                    name,
                    allow_patterns=files,
                    ignore_patterns=ignored,
                    local_files_only=offline,
                )
            )
    except errors.GatedRepoError as error:
        reason = "is gated: accept its terms on the hub and log in with: hf auth login"
        raise ModelError(f"{name} {reason}") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"{name} is neither a folder nor a model on the hub (a private one needs: hf auth "
            f"login); built-ins are: {', '.join(sorted(BUILT_INS))}"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ModelError(_offline_message(name)) from error
    except errors.HTTPError as error:  # type: ignore[attr-defined]
        kind = type(error).__name__
        raise ModelError(f"the hub failed for {name} ({kind}); try again") from error


def _offline_message(name: str) -> str:
    return (
        f"offline: {name} is no local folder, not in the hub's cache, and the hub cannot be "
        "reached; connect once, or give a local model folder"
    )
