"""What can go wrong with a store. None of these reaches the engine: it only appends."""

from __future__ import annotations

from whiflash.core.errors import ConfigError, WhiFlashError


class StoreError(WhiFlashError):
    """Base of the store's errors."""


class StoreLockedError(ConfigError):
    """Another process writes to this store; the message names it."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or may not be used, just now. Drafting goes on without it."""


class StoreClosedError(StoreError):
    """The log was closed."""


class CorruptRecordError(StoreError):
    """The bytes are no record: cut off, altered, or never one."""


class UnknownVersionError(StoreError):
    """A sound record in a format that this version does not know."""
