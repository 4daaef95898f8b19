"""The trajectory store that all verifiers share, for a gateway's TrajectoryService."""

from __future__ import annotations

from collections.abc import Callable, Collection

from whiflash.chat.format import ChatFormat
from whiflash.config import EngineConfig
from whiflash.core.errors import NotFoundError
from whiflash.core.protocols import Tokenizer
from whiflash.engine.store import OpenedLog, open_store
from whiflash.serving.remote.leases import LeaseBook
from whiflash.serving.trajectories.conversation import TurnReader
from whiflash.serving.trajectories.desk import StoreDesk
from whiflash.trajectories.scope import Scopes


class SharedStore:
    """One connection to it. desk, leases: None where the store is each verifier's own."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        chat: Callable[[], ChatFormat],
        eos_ids: Collection[int],
    ) -> None:
        """Raises ConfigError on a place or secrets that cannot be used."""
        self._opened: OpenedLog | None = None
        self.desk: StoreDesk | None = None
        self.leases: LeaseBook | None = None
        if "://" not in config.store:
            return
        self._opened = open_store(config)
        scopes = Scopes(self._opened.keys, tokenizer.fingerprint)
        self.desk = StoreDesk(
            self._opened.log,
            scopes,
            self._opened.redactor(tokenizer),
            lambda: TurnReader(chat(), tokenizer, eos_ids),
        )
        self.leases = LeaseBook(config.store, self._opened.keys[0].secret)

    def require_desk(self) -> StoreDesk:
        """Raises NotFoundError where there is none."""
        if self.desk is None:
            raise NotFoundError(
                "this cluster's verifiers keep their turns for themselves; give store a redis:// "
                "URL to import, export and delete"
            )
        return self.desk

    def close(self) -> None:
        """But for the leases, which are the pool's. Idempotent."""
        if self._opened is not None:
            self._opened.close()
