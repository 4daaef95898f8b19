"""What every answer and every chunk of it begins with."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from whiflash.serving.backend import ServedModel


@dataclass(frozen=True, slots=True)
class Head:
    """`id` is new for each answer; `fingerprint` changes with the weights."""

    id: str
    kind: str
    created_s: int
    model: str
    fingerprint: str

    @classmethod
    def new(cls, prefix: str, kind: str, model: ServedModel) -> Head:
        """A head with a fresh id, `prefix` in front of it."""
        return cls(
            f"{prefix}-{secrets.token_hex(12)}",
            kind,
            int(time.time()),
            model.name,
            f"fp_{model.fingerprint[:12]}",
        )

    @property
    def call_prefix(self) -> str:
        """Ids of tool calls begin with it."""
        return f"call_{self.id.rpartition('-')[2]}_"

    def record(self, choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """An answer or a chunk with these choices."""
        return {
            "id": self.id,
            "object": self.kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            **fields,
        }
