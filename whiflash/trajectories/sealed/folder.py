"""Where sealed segments lie: a folder per namespace under a root that one process uses."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path
from typing import Self

from whiflash.core.errors import ConfigError
from whiflash.trajectories.file_log.lock import WriterLock
from whiflash.trajectories.file_log.shelf import folder_name

logger = logging.getLogger(__name__)


class SealedFolder:
    """is_durable: what is written here is found again by the next process. Otherwise files lose
    their names as soon as they are mapped, so that the end of the process, however it comes, is
    their end too."""

    def __init__(
        self,
        root: Path,
        *,
        is_durable: bool,
        lock: WriterLock | None = None,
        temporary: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.root = root
        self.is_durable = is_durable
        self._lock = lock
        self._temporary = temporary

    @classmethod
    def beside_log(cls, folder: Path) -> Self:
        """In the folders of a file log, whose lock the caller holds."""
        return cls(folder, is_durable=True)

    @classmethod
    def temporary(cls) -> Self:
        """Raises ConfigError."""
        try:
            made = tempfile.TemporaryDirectory(prefix="whiflash-sealed-")
        except OSError as error:
            raise ConfigError(
                f"old trajectories need a temporary folder ({error.strerror}); set TMPDIR"
            ) from error
        return cls(Path(made.name), is_durable=False, temporary=made)

    @classmethod
    def of_shared_log(cls, data: Path, where: str) -> Self:
        """This machine's segments of a log that others use too, told apart by `where` it is. A
        second process of the same machine, and one that may not write there, seals in a temporary
        folder and says so. Raises ConfigError."""
        digest = hashlib.blake2b(where.encode(), digest_size=8).hexdigest()
        root = data / f"sealed-{digest}"
        try:
            return cls(root, is_durable=True, lock=WriterLock(root))
        except ConfigError as error:
            logger.warning("%s; what this process seals is gone with it", error)
            return cls.temporary()

    def of_namespace(self, namespace: str) -> Path:
        return self.root / folder_name(namespace)

    def close(self) -> None:
        """Idempotent."""
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            self._temporary.cleanup()
