"""Errors a caller can act on. Front ends turn them into exit codes, HTTP and gRPC statuses."""

from __future__ import annotations


class WhiFlashError(Exception):
    """Base of all errors raised on purpose. The message is one line and says what to do."""


class ConfigError(WhiFlashError):
    """A flag, option or configuration file is wrong, or two options exclude each other."""


class ModelError(WhiFlashError):
    """A model cannot be found, fetched, read or verified."""


class UnsupportedModelError(ModelError):
    """The model needs something that this version refuses by name."""


class InvalidRequestError(WhiFlashError):
    """A request cannot be honoured exactly; `param` names the offending field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLongError(InvalidRequestError):
    """Prompt plus the asked tokens do not fit the context limit or the KV memory."""


class QueueFullError(WhiFlashError):
    """The bounded waiting queue is full; try again later."""


class EngineClosedError(WhiFlashError):
    """The engine was closed while, or before, the request ran."""


class NumericsError(WhiFlashError):
    """The target produced NaN logits; the request ends with finish reason `error`."""
