"""A stored turn as one line of JSON: what `export` writes and `import` takes back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from whiflash.core.errors import InvalidRequestError
from whiflash.trajectories.holdings import content_id
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.scope import OwnerOf, Scopes

_TEXTS = {
    "run_id": "run_id", "agent": "template_id", "subject": "subject", "model": "model_label",
    "finish_reason": "finish_reason",
}  # fmt: skip
_NUMBERS = ("segment", "part", "time_ms")
_MAX_ID = 2**31 - 1
RECORD_ID = "record_id"
_RECORD_ID = re.compile(r"[0-9a-f]{16}")


def turn_json(record: TrajectoryRecord) -> dict[str, Any]:
    """JSON-able. The namespace is left out: it belongs to the store. `record_id` is 16 hex digits,
    as JSON readers round numbers of 64 bits."""
    texts = {name: getattr(record, field) for name, field in _TEXTS.items()}
    numbers = {name: getattr(record, name) for name in _NUMBERS}
    return {
        **texts, **numbers, RECORD_ID: f"{record.record_id:016x}",
        "tokenizer": record.tokenizer, "tokens": record.tokens.tolist(),
    }  # fmt: skip


def read_turn(turn: Mapping[str, Any], scopes: Scopes, owner_of: OwnerOf) -> TrajectoryRecord:
    """The record of a line that `turn_json` wrote, for another owner if need be. It keeps its
    record id, so that a copy of it is known; a line without one takes it from what it says.
    Raises InvalidRequestError where it is none, or of another tokenizer than the scopes'."""
    tokenizer = scopes.tokenizer
    if turn.get("tokenizer") != tokenizer:
        raise InvalidRequestError(
            f"its ids belong to tokenizer {turn.get('tokenizer')!r}, this store's model has "
            f"{tokenizer!r}; give the model that it was exported from",
            "tokenizer",
        )
    texts: dict[str, Any] = {field: _text(turn, name) for name, field in _TEXTS.items()}
    numbers: dict[str, Any] = {name: _number(turn, name) for name in _NUMBERS}
    namespace = scopes.namespace(owner_of(texts["subject"]))
    record = TrajectoryRecord(
        namespace, tokens=_tokens(turn.get("tokens")), tokenizer=tokenizer, **texts, **numbers
    )
    return replace(record, record_id=_record_id(turn) or content_id(record))


def _record_id(turn: Mapping[str, Any]) -> int:
    """0 where the line has none."""
    value = turn.get(RECORD_ID, "")
    if value == "":
        return 0
    if not isinstance(value, str) or not _RECORD_ID.fullmatch(value) or int(value, 16) == 0:
        raise InvalidRequestError(f"record_id must be 16 hex digits, got {value!r:.40}", RECORD_ID)
    return int(value, 16)


def _text(turn: Mapping[str, Any], name: str) -> str:
    value = turn.get(name, "")
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} must be text, got {value!r}", name)
    return value


def _number(turn: Mapping[str, Any], name: str) -> int:
    value = turn.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidRequestError(f"{name} must be a whole number from 0, got {value!r}", name)
    return value


def _tokens(value: object) -> np.ndarray[Any, np.dtype[np.int32]]:
    is_ids = isinstance(value, list) and all(
        type(token) is int and 0 <= token <= _MAX_ID for token in value
    )
    if not is_ids or not value:
        raise InvalidRequestError("tokens must be a list of token ids", "tokens")
    return np.array(value, np.int32)
