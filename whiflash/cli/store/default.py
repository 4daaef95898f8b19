"""The store of a server that was not told where to keep what it learns."""

from __future__ import annotations

import logging

from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError

logger = logging.getLogger("whiflash.store")


def with_default_store(settings: EngineConfig) -> EngineConfig:
    """The user's data folder where no store was named. Where that one is in use, or cannot be
    written, the server starts all the same, keeps trajectories in memory and says so."""
    if "store" in settings.model_fields_set:
        return settings
    from whiflash.engine.store import FILE, open_store
    from whiflash.trajectories.open import MEMORY

    wanted = settings.model_copy(update={"store": FILE})
    try:
        open_store(wanted).close()
    except ConfigError as error:
        logger.warning("trajectories are kept in memory only: %s", error)
        return settings.model_copy(update={"store": MEMORY})
    return wanted
