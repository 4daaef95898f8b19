"""The file that `whiflash calibrate entropy` writes and `--policy entropy:file=...` reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from whiflash.core.errors import ConfigError

FORMAT = "whiflash-entropy-1"


@dataclass(frozen=True, slots=True)
class TauFile:
    """tau: nats; above, below: the arm where entropy is above tau, and at or below it.

    target: fingerprint of the target that it was measured on. provenance: what was measured, for
    people: costs, prompts per category, goodput per tau, share of roots below.
    """

    tau: float
    above: str
    below: str
    target: str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Raises OSError."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> TauFile:
        """Raises ConfigError if it cannot be read or is not such a file."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the tau file {path} ({error.strerror})") from None
        except ValueError:
            raise ConfigError(f"the tau file {path} is no JSON") from None
        if not isinstance(table, dict) or table.pop("format", None) != FORMAT:
            raise ConfigError(f"{path} is no {FORMAT} file; `whiflash calibrate entropy` makes one")
        return cls._checked(path, table)

    @classmethod
    def _checked(cls, path: Path, table: dict[str, Any]) -> TauFile:
        wanted = {item.name for item in fields(cls)}
        if set(table) != wanted:
            odd = ", ".join(sorted(set(table) ^ wanted))
            raise ConfigError(f"the tau file {path} lacks or has too much: {odd}")
        tau, words = table["tau"], [table[name] for name in ("above", "below", "target")]
        is_number = isinstance(tau, int | float) and not isinstance(tau, bool)
        if not is_number or not math.isfinite(tau) or not all(isinstance(w, str) for w in words):
            raise ConfigError(f"the tau file {path} needs a number tau and words above, below, "
                              "target")  # fmt: skip
        return cls(**table)
