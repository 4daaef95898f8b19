"""An engine's trajectories: the log, what drafts from it, and whose is whose."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from whiflash.config import EngineConfig
from whiflash.core.protocols import Tokenizer
from whiflash.trajectories import scope_keys
from whiflash.trajectories.file_log import default_folder
from whiflash.trajectories.index import Sealing, TrajectoryIndexes
from whiflash.trajectories.log import LogLimits, TrajectoryLog
from whiflash.trajectories.open import MEMORY, open_log
from whiflash.trajectories.redaction import RedactedLog, Redactor, SpanFinder, load_finder
from whiflash.trajectories.scope import Owner, ScopeKey, Scopes
from whiflash.trajectories.sealed.folder import SealedFolder

FILE = "file"
CLOSE_S = 5.0
"""What is pending at the end gets this long."""
LIVE_NAMESPACE_BYTES = 160 * 2**20
"""About two million tokens of one namespace in the live tier; older ones are sealed."""
SEALED_PER_LOG_BYTE = 2.0
"""A token takes 7.7 bytes sealed and about 2 in the log: where the log is full, its newer half can
be sealed. Older turns stay in it for exports and for other replicas' sake."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log as it was opened, before anything of the model is known, with the secrets of its
    namespaces. `place` is its folder, None if it has none; `limits` hold for its indexes too;
    `finders` name what must not be stored beside common secret shapes."""

    log: TrajectoryLog
    keys: tuple[ScopeKey, ...]
    place: Path | None = None
    limits: LogLimits = dataclasses.field(default_factory=LogLimits)
    finders: tuple[SpanFinder, ...] = ()

    def redactor(self, tokenizer: Tokenizer) -> Redactor:
        """A new one, for one thread."""
        return Redactor(tokenizer, *self.finders)

    def close(self) -> None:
        self.log.close(CLOSE_S)


def open_store(config: EngineConfig) -> OpenedLog:
    """Raises ConfigError on a place, secrets or a redactor that cannot be used, StoreLockedError
    where another process writes there. A Redis server that does not answer is no error."""
    finders = (load_finder(config.redact),) if config.redact else ()
    place = store_folder(config.store)
    if place is not None:
        keys = scope_keys.folder_keys(place)
    elif config.store == MEMORY:
        keys = scope_keys.environment_keys() or scope_keys.random_keys()
    else:
        keys = scope_keys.shared_keys()
    limits = LogLimits(
        config.store_max_age_s, config.store_namespace_bytes, config.store_bytes
    )  # fmt: skip
    log = open_log(
        place or config.store, None, limits, assume_noeviction=config.assume_noeviction
    )  # fmt: skip
    return OpenedLog(log, keys, place, limits, finders)


def _sealed_folder(opened: OpenedLog) -> SealedFolder:
    """With the log where that is in files, in the user's data folder where others write it too,
    else in a temporary folder. Raises ConfigError."""
    if opened.place is not None:
        return SealedFolder.beside_log(opened.place)
    status = opened.log.status()
    if status.kind == MEMORY:
        return SealedFolder.temporary()
    return SealedFolder.of_shared_log(default_folder().parent, status.where)


def store_folder(store: str) -> Path | None:
    """Where the files of a store lie; None for memory and Redis."""
    if store == MEMORY or "://" in store:
        return None
    return default_folder() if store == FILE else Path(store).expanduser()


class EngineStore:
    """Secrets are cut out of what is appended to `log`; `plain_log` takes what was searched."""

    def __init__(self, opened: OpenedLog, tokenizer: Tokenizer, index_bytes: int) -> None:
        self.plain_log = opened.log
        self.place = opened.place
        self.log = RedactedLog(opened.log, opened.redactor(tokenizer))
        self._opened = opened
        self._tokenizer = tokenizer
        self.scopes = Scopes(opened.keys, tokenizer.fingerprint)
        self._sealed_folder = _sealed_folder(opened)
        limits = opened.limits
        self.indexes = TrajectoryIndexes(
            self.log,
            index_bytes,
            min(index_bytes, LIVE_NAMESPACE_BYTES),
            max_age_s=limits.max_age_s,
            sealing=Sealing(
                self._sealed_folder,
                int(SEALED_PER_LOG_BYTE * limits.max_bytes),
                int(SEALED_PER_LOG_BYTE * limits.max_namespace_bytes),
            ),
        )

    @property
    def is_durable(self) -> bool:
        """It outlives the process."""
        return self.log.status().kind != MEMORY

    def redactor(self) -> Redactor:
        """A new one, as the log's, for another thread."""
        return self._opened.redactor(self._tokenizer)

    def namespace(self, name: str) -> str:
        """The namespace of a plain name (`Owner.name`). Raises ValueError on an empty one."""
        return self.scopes.namespace(Owner.named(name))

    def describe(self) -> dict[str, Any]:
        """For plan and metrics; JSON-able, a snapshot, without passwords and secrets."""
        status = dataclasses.asdict(self.log.status())
        return {
            **status,
            "ready_shared": self.indexes.ready_shared,
            "num_masked": self.log.num_masked,
            "index_bytes": self.indexes.num_bytes,
            "sealed_bytes": self.indexes.num_sealed_bytes,
            "sealed_tokens": self.indexes.num_sealed_tokens,
            "key_id": self.scopes.key_id,
        }

    def close(self) -> None:
        """After the last append. Idempotent."""
        self.indexes.close()
        self._sealed_folder.close()
        self.log.close(CLOSE_S)
