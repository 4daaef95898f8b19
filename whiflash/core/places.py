"""Addresses and stores as people write them, checked without touching the network."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final

STORE_SCHEMES: Final = ("redis", "rediss", "unix")
_NUMBERS = re.compile(r"[0-9.]+")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


def check_host(host: str) -> None:
    """Raises ValueError where it is neither an address nor a name. What is made of digits and dots,
    or has a colon, is meant as an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if _NUMBERS.fullmatch(host) or not _NAME.fullmatch(host):
            raise ValueError(
                f"host {host!r} is no address; write an IPv4 or IPv6 address, like 127.0.0.1, "
                "0.0.0.0 or ::1, or a host's name"
            ) from None


def is_loopback(host: str) -> bool:
    """Whether it is this machine's own for sure: a name may mean any address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_store(store: str) -> None:
    """Raises ValueError for a URL of a scheme that no store has, and for a place that cannot be a
    folder since a file is there. A URL is not repeated: it may hold a password."""
    scheme, is_url, _ = store.partition("://")
    if is_url:
        _check_scheme(scheme.lower())
        return
    place = Path(store).expanduser()
    taken = next((each for each in (place, *place.parents) if each.exists()), None)
    if taken is not None and not taken.is_dir():
        raise ValueError(f"store: {taken} is a file; name a folder")


def _check_scheme(scheme: str) -> None:
    if scheme in STORE_SCHEMES:
        return
    named = next((word for word in ("Sentinel", "Cluster") if word.lower() in scheme), "")
    why = f": Redis {named} is not supported, a single server or a proxy is" if named else ""
    accepted = ", ".join(f"{each}://" for each in STORE_SCHEMES)
    raise ValueError(f"store: {scheme}:// is no store{why}; write one of {accepted}")
