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


class UnauthenticatedError(WhiFlashError):
    """No key, or one that this server does not know."""


class PermissionDeniedError(WhiFlashError):
    """The key is known and may not do this."""


class NotFoundError(WhiFlashError):
    """What the caller names does not exist, or is not the caller's."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class RateLimitedError(WhiFlashError):
    """The caller's own limit is used up for `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DrainingError(WhiFlashError):
    """The server is going away (or not there yet): ask another one, or the same one later."""


class DeadlineExceededError(WhiFlashError):
    """The caller's deadline passed before the answer was complete."""


class RequestCancelledError(WhiFlashError):
    """The caller cancelled the request by its id."""
