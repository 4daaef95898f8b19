"""Where a model's chat template comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from whiflash.core.errors import ConfigError, ModelError

_SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """text: Jinja; where: what errors call it; values: what the template sees beside messages."""

    text: str
    where: str
    values: Mapping[str, Any]


def own_source(name: str) -> TemplateSource | None:
    """Our own template for a built-in model, or None. SmolLM2's own one ignores tools and fails
    on a message that holds calls alone."""
    if name != "smollm2-135m":
        return None
    text = files("whiflash.chat").joinpath("templates/hermes.jinja").read_text("utf-8")
    return TemplateSource(text, "the built-in hermes template", {"default_system": _SMOLLM2_SYSTEM})


def override_source(folder: Path, override: Path) -> TemplateSource:
    """The template in the file that the user named. Raises ConfigError if it cannot be read."""
    try:
        text = override.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read --chat-template {override}: {_why(error)}") from None
    return TemplateSource(text, f"the chat template {override}", _special_tokens(_config(folder)))


def model_source(folder: Path, name: str) -> TemplateSource:
    """The template that came with the tokenizer: `chat_template.jinja`, else the entry in
    `tokenizer_config.json`. Raises ModelError if there is none."""
    config = _config(folder)
    path = folder / "chat_template.jinja"
    text = _read(path) if path.is_file() else _named(config.get("chat_template"))
    if text is None:
        raise ModelError(f"{name} has no chat template; give one with --chat-template FILE")
    return TemplateSource(text, f"the chat template of {name}", _special_tokens(config))


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read(path))
    except ValueError:
        raise ModelError(f"{path} is not JSON; fetch the model again") from None
    return config if isinstance(config, dict) else {}


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {_why(error)}; fetch the model again") from None


def _named(entry: object) -> str | None:
    """Some models keep several templates: the one for tools writes all that the default does."""
    if isinstance(entry, list):
        entry = {item["name"]: item["template"] for item in entry if isinstance(item, dict)}
    if isinstance(entry, dict):
        entry = entry.get("tool_use", entry.get("default"))
    return entry if isinstance(entry, str) else None


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens: dict[str, str] = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            tokens[name] = text
    return tokens


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
