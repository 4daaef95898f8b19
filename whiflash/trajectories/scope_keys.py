"""The secrets of namespaces: from the environment, or from a file made at the first start."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from whiflash.config import read_environment
from whiflash.core.errors import ConfigError
from whiflash.trajectories.scope import ScopeKey

VARIABLE = "WHIFLASH_STORE_KEYS"
FILE_NAME = "store.keys"
MIN_SECRET_LENGTH = 32
_KEY = re.compile(r"([A-Za-z0-9_-]{1,16}):([A-Za-z0-9_+/=-]+)")
_SECRET_BYTES = 32


def new_scope_key(key_id: str) -> str:
    """`ID:SECRET` with 256 random bits, as VARIABLE takes it. Raises ConfigError on an id that is
    none."""
    text = f"{key_id}:{secrets.token_hex(_SECRET_BYTES)}"
    parse_scope_keys(text, "the new key")
    return text


def parse_scope_keys(text: str, where: str) -> tuple[ScopeKey, ...]:
    """`ID:SECRET`, several apart by commas or white space, the current one first. Raises
    ConfigError, naming `where` but never a secret."""
    keys = [_parsed(item, where) for item in re.split(r"[,\s]+", text) if item]
    if not keys:
        raise ConfigError(f"{where} holds no key; write ID:SECRET (`whiflash store key` makes one)")
    if len({key.key_id for key in keys}) < len(keys):
        raise ConfigError(f"{where} names one key id twice")
    return tuple(keys)


def _parsed(item: str, where: str) -> ScopeKey:
    match = _KEY.fullmatch(item)
    if match is None or len(match[2]) < MIN_SECRET_LENGTH:
        raise ConfigError(
            f"{where}: a key is ID:SECRET, the id of 1 to 16 letters, digits, _ and -, the secret "
            f"of at least {MIN_SECRET_LENGTH}; `whiflash store key` makes one"
        )
    return ScopeKey(match[1], match[2].encode())


def environment_keys() -> tuple[ScopeKey, ...] | None:
    """Those of VARIABLE; None where it is unset. Raises ConfigError."""
    text = read_environment(VARIABLE)
    return None if text is None else parse_scope_keys(text, VARIABLE)


def shared_keys() -> tuple[ScopeKey, ...]:
    """For a store that several machines share: they must agree. Raises ConfigError."""
    keys = environment_keys()
    if keys is None:
        raise ConfigError(
            f"a Redis store needs {VARIABLE}, the same on every replica; `whiflash store key` "
            "makes one"
        )
    return keys


def folder_keys(folder: Path) -> tuple[ScopeKey, ...]:
    """The environment's, or those of the file in `folder`, which is made if it is not there.
    Raises ConfigError where it cannot be made, or others can read it."""
    keys = environment_keys()
    if keys is not None:
        return keys
    file = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists():
            _make(file)
        mode = stat.S_IMODE(file.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            raise ConfigError(f"{file} can be read by others; run: chmod 600 {file}")
        return parse_scope_keys(file.read_text(encoding="ascii"), str(file))
    except OSError as error:
        raise ConfigError(f"the key file {file} cannot be used ({error.strerror})") from error
    except UnicodeDecodeError:
        raise ConfigError(f"the key file {file} is damaged") from None


def random_keys() -> tuple[ScopeKey, ...]:
    """For a store that ends with the process."""
    return (ScopeKey("process", secrets.token_bytes(_SECRET_BYTES)),)


def _make(file: Path) -> None:
    """Complete from the first moment on, and never over a file that another process just made."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(new_scope_key("k1") + "\n")
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
