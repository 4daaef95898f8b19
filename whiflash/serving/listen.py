"""Addresses of a server, taken before the model is loaded: a port in use is told at once."""

from __future__ import annotations

import errno
import socket

from whiflash.core.errors import ConfigError

BACKLOG = 1024


def bind(host: str, port: int, option: str) -> socket.socket:
    """A socket bound to the address, not listening yet; port 0 takes a free one. Raises
    ConfigError naming the option to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(
            f"--host {host} is no address of this machine ({error.strerror})"
        ) from None
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigError(_why(host, port, option, error)) from None
    bound.setblocking(False)
    return bound


def check_free(host: str, port: int, option: str) -> None:
    """Raises ConfigError if nobody can listen there now."""
    bind(host, port, option).close()


def address_text(host: str, port: int) -> str:
    """host:port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(host: str, port: int, option: str, error: OSError) -> str:
    where = address_text(host, port)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use; choose another port with {option}"
    if error.errno == errno.EACCES:
        return f"no permission to listen on {where}; choose a port above 1023 with {option}"
    return f"cannot listen on {where} ({error.strerror}); check --host and {option}"
