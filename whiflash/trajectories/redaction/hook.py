"""Finders of secrets that an operator adds to ours, named in the configuration."""

from __future__ import annotations

import importlib

from whiflash.core.errors import ConfigError
from whiflash.trajectories.redaction.redactor import SpanFinder


def load_finder(name: str) -> SpanFinder:
    """The function `MODULE:FUNCTION`, which gets a text and returns character ranges [start, end)
    to leave out. Raises ConfigError where it cannot be imported or called."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a foreign module does when it is imported
        raise ConfigError(
            f"redact {name}: cannot import {module_name} ({type(error).__name__}: {error}); "
            "install it or put its folder into PYTHONPATH"
        ) from error
    finder: SpanFinder | None = getattr(module, function_name, None)
    if not callable(finder):
        raise ConfigError(f"redact {name}: {module_name} has no function {function_name}")
    return finder
