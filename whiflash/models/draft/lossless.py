"""How a checkpoint wants its drafts accepted. Here a text is always the target's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from whiflash.core.errors import UnsupportedModelError
from whiflash.models.draft.config import parse


class _Acceptance(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    verifier_accept_k: int | None = None
    accept_tolerance: float | None = None


class _Methods(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    proposal_methods: list[_Acceptance] | None = None


class _Table(_Acceptance):
    """config.json; speculators write the settings by method, and nothing else may have them."""

    speculators_config: _Methods | None = None


def require_lossless(config: Mapping[str, Any], source: Path) -> None:
    """Raises UnsupportedModelError, naming them, on settings that would change the text, and
    ModelError where they cannot be read."""
    table = parse(_Table, config, source)
    methods = table.speculators_config or _Methods()
    for found in (table, *(methods.proposal_methods or ())):
        if (found.verifier_accept_k or 1) > 1 or found.accept_tolerance:
            raise UnsupportedModelError(
                f"{source} asks for lossy acceptance (verifier_accept_k={found.verifier_accept_k}, "
                f"accept_tolerance={found.accept_tolerance}); remove it from config.json: no draft "
                "may change the text"
            )
