"""Where a prompt comes from: the flag itself, a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from whiflash.core.errors import ConfigError


def read_prompt(value: str) -> str:
    """`@FILE` reads a file, `-` standard input, all else is the prompt itself.

    Raises ConfigError if there is nothing to read.
    """
    text = _read(value)
    if not text:
        raise ConfigError("the prompt is empty; give --prompt TEXT, @FILE or -")
    return text


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
