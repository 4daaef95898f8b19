"""Ids of calls: the client's own where it can stand in a log and a header, else a new one."""

from __future__ import annotations

import re
import secrets

_GIVEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def request_id_of(given: str | None) -> str:
    """`given` if it is 1 to 128 letters, digits and `._:-`; else a fresh id."""
    if given is not None and _GIVEN.fullmatch(given):
        return given
    return f"req-{secrets.token_hex(12)}"
