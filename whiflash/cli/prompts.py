"""Where a prompt comes from: the flag itself, a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine


def read_prompt(value: str) -> str:
    """`@FILE` reads a file, `-` standard input, all else is the prompt itself.

    Raises ConfigError if there is nothing to read.
    """
    text = _read(value)
    if not text:
        raise ConfigError("the prompt is empty; give --prompt TEXT, @FILE or -")
    return text


def prompt_ids(engine: Engine, text: str, is_chat: bool) -> list[int]:
    """Ids of the prompt; with `is_chat` it becomes a user's message in the model's template."""
    if is_chat:
        from whiflash.chat.format import ChatFormat

        override = engine.config.chat_template
        chat = ChatFormat.for_model(engine.model_folder, engine.model_name, override)
        text = chat.render([{"role": "user", "content": text}])
    return engine.tokenizer.encode(text)


def _read(value: str) -> str:
    if value == "-":
        return sys.stdin.read()
    if not value.startswith("@"):
        return value
    file = Path(value[1:])
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = f"cannot read the prompt file {file} ({error.strerror})"
        raise ConfigError(f"{reason}; check --prompt") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the prompt file {file} is not UTF-8 text") from None
