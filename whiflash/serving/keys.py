"""API keys: what a key file says about them, and how one is made.

Only digests are kept. A key has 256 random bits, so one round of SHA-256 is enough: there is
nothing to guess, and a slow hash on every call would cost more than the routing of a round.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whiflash.core.errors import ConfigError
from whiflash.serving.caller import Caller, Scope

KEY_PREFIX = "wf-"
MIN_KEY_LENGTH = 32
NEW_KEY = "whiflash keys new --id alice --tenant acme"
"""What hints tell people to type; with `--file FILE` it goes into a key file."""
_KEY_BYTES = 32
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """None is no limit. `weight` is the key's tenant's share of a busy server beside others."""

    max_in_flight: int | None = None
    tokens_per_minute: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key without its secret."""

    digest: str
    caller: Caller
    limits: KeyLimits = field(default_factory=KeyLimits)


def new_key() -> str:
    """A secret with 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest_of(secret: str) -> str:
    """What a key file holds of a secret."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def key_entry(
    secret: str,
    key_id: str,
    tenant: str,
    project: str,
    scopes: Sequence[Scope],
    limits: KeyLimits,
    *,
    shares_users: bool = False,
) -> str:
    """The TOML table of a key, for the end of a key file. Raises ConfigError on a bad name."""
    for what, name in (("id", key_id), ("tenant", tenant), ("project", project)):
        _check_name(f"key {key_id!r}", what, name)
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    lines = [
        "[[keys]]",
        f'id = "{key_id}"',
        f'digest = "{digest_of(secret)}"',
        f'tenant = "{tenant}"',
        f'project = "{project}"',
        f"scopes = [{listed}]",
    ]
    if shares_users:
        lines.append("shares_users = true")
    if limits.max_in_flight is not None:
        lines.append(f"max_in_flight = {limits.max_in_flight}")
    if limits.tokens_per_minute is not None:
        lines.append(f"tokens_per_minute = {limits.tokens_per_minute}")
    if limits.weight != 1.0:
        lines.append(f"weight = {limits.weight}")
    return "\n".join(lines) + "\n"


def read_key_file(file: Path) -> tuple[ApiKey, ...]:
    """The keys of a TOML file with one `[[keys]]` table each. Raises ConfigError in one line."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the key file {file} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the key file {file} is not UTF-8 text") from None
    return parse_keys(f"key file {file}", text)


def parse_keys(where: str, text: str) -> tuple[ApiKey, ...]:
    """The keys of a key file's text; `where` is what errors call it."""
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: broken TOML: {error}") from None
    entries = table.pop("keys", None)
    if table or not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{where}: it must hold [[keys]] tables and nothing else; "
            f"`{NEW_KEY} --file keys.toml` writes one"
        )
    keys = tuple(_key(f"{where}, key {number}", entry) for number, entry in enumerate(entries, 1))
    _check_distinct(where, keys)
    return keys


def environment_key(secret: str) -> ApiKey:
    """The one key of WHIFLASH_API_KEY: tenant, project and id are `default`, scope `generate`.
    Raises ConfigError if it is short enough to be guessed."""
    if len(secret) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"WHIFLASH_API_KEY has {len(secret)} characters, at least {MIN_KEY_LENGTH} are "
            f"needed; `{NEW_KEY}` prints a good one"
        )
    caller = Caller("default", "default", frozenset({Scope.GENERATE}), "environment")
    return ApiKey(digest_of(secret), caller)


def _key(where: str, entry: object) -> ApiKey:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: it must be a [[keys]] table")
    known = {"id", "digest", "tenant", "project", "scopes", "shares_users"}
    known |= KeyLimits.__dataclass_fields__.keys()
    for name in entry.keys() - known:
        raise ConfigError(f"{where}: unknown field {name!r} (known: {', '.join(sorted(known))})")
    digest = entry.get("digest")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ConfigError(f'{where}: digest must be "sha256:" and 64 hex digits')
    names = {name: _check_name(where, name, entry.get(name, "")) for name in ("id", "tenant")}
    project = _check_name(where, "project", entry.get("project", "default"))
    shares_users = entry.get("shares_users", False)
    if not isinstance(shares_users, bool):
        raise ConfigError(f"{where}: shares_users must be true or false, got {shares_users!r}")
    caller = Caller(names["tenant"], project, _scopes(where, entry), names["id"], shares_users)
    return ApiKey(digest, caller, _limits(where, entry))


def _check_name(where: str, what: str, value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigError(f"{where}: {what} must be 1 to 64 letters, digits and ._-, got {value!r}")
    return value


def _scopes(where: str, entry: Mapping[str, Any]) -> frozenset[Scope]:
    given = entry.get("scopes", [Scope.GENERATE])
    try:
        return frozenset(Scope(name) for name in given)
    except (TypeError, ValueError):
        valid = ", ".join(Scope)
        raise ConfigError(f"{where}: scopes must be a list of: {valid}; got {given!r}") from None


def _limits(where: str, entry: Mapping[str, Any]) -> KeyLimits:
    for name in ("max_in_flight", "tokens_per_minute"):
        value = entry.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigError(f"{where}: {name} must be a whole number from 1, got {value!r}")
    weight = entry.get("weight", 1.0)
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= 1000:
        raise ConfigError(f"{where}: weight must be above 0 and at most 1000, got {weight!r}")
    return KeyLimits(entry.get("max_in_flight"), entry.get("tokens_per_minute"), float(weight))


def _check_distinct(where: str, keys: Sequence[ApiKey]) -> None:
    for what, values in (
        ("id", [key.caller.key_id for key in keys]),
        ("digest", [key.digest for key in keys]),
    ):
        if len(set(values)) < len(values):
            raise ConfigError(f"{where}: two keys have the same {what}")
