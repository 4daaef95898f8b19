"""The grammar library, loaded when structured output is used for the first time."""

from __future__ import annotations

import re
from types import ModuleType

from whiflash.core.errors import ConfigError


def grammar_library() -> ModuleType:
    """The module `xgrammar`. Raises ConfigError naming the extra where it is not installed."""
    try:
        import xgrammar
    except ImportError as error:
        raise ConfigError(
            f"structured output needs xgrammar ({error}); install it: pip install 'whiflash[serve]'"
        ) from None
    return xgrammar


_WHERE = re.compile(r"^\[[\d:]+\] \S+: (Check failed: )?")


def library_reason(error: Exception) -> str:
    """What the library says, in one line, without its clock and source lines."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return _WHERE.sub("", lines[0])
