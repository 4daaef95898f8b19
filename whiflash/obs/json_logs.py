"""Logs as JSON lines. No prompt and no answer ever enters them.

Our own records carry numbers and short words in `fields`. Of an exception the class and the places
in the code are written, not its message: that may quote what a client sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

MAX_WORD = 200
MAX_FRAMES = 20


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, event, then the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line.update(_fault(record.exc_info[1]))
        # In ASCII: half a surrogate pair from a client must not break the stream.
        return json.dumps(line, default=repr)


def log_event(logger: logging.Logger, event: str, fields: Mapping[str, Any]) -> None:
    """An event with its fields, at level INFO. Raises ValueError for a text that is no short
    word: prompts and answers do not belong into logs."""
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > MAX_WORD:
            raise ValueError(f"log field {name!r} is text; only short words are logged")
    logger.info(event, extra={"fields": dict(fields)})


def log_fault(logger: logging.Logger, event: str, error: BaseException, **fields: Any) -> None:
    """A fault of ours at level ERROR: its class and where, never its message."""
    info = (type(error), error, error.__traceback__)
    logger.error(event, extra={"fields": fields}, exc_info=info)


def configure_logs(level: str = "INFO", stream: TextIO | None = None) -> None:
    """JSON lines of all loggers to `stream` (standard error). Replaces handlers set before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _fault(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": places}
