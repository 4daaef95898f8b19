"""Who may talk to whom between our processes: a shared token, TLS, client certificates."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from whiflash.core.errors import ConfigError, UnauthenticatedError

TOKEN_KEY = "authorization"  # noqa: S105  (the name of a header)
TRACE_KEY = "traceparent"
MIN_TOKEN_LENGTH = 16
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. A server needs certificate and key; with `ca` it demands certificates of that
    authority from its clients (mTLS). A client needs `ca`; certificate and key are what it shows.
    server_name: the name in the server's certificate, where it is reached by an address."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS: certificate and key belong together; give both or neither")

    def server_credentials(self) -> grpc.ServerCredentials:
        """Raises ConfigError where a file is missing."""
        if self.certificate is None or self.key is None:
            raise ConfigError("TLS: a server needs a certificate and its key")
        pair = (_read(self.key), _read(self.certificate))
        authority = None if self.ca is None else _read(self.ca)
        return grpc.ssl_server_credentials([pair], authority, authority is not None)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Raises ConfigError where a file is missing."""
        authority = None if self.ca is None else _read(self.ca)
        if self.certificate is None or self.key is None:
            return grpc.ssl_channel_credentials(authority)
        return grpc.ssl_channel_credentials(authority, _read(self.key), _read(self.certificate))


@dataclass(frozen=True, slots=True)
class Access:
    """The same for both ends of a link. token: what every call must carry, "" for none."""

    token: str = field(default="", repr=False)
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        if self.token and len(self.token) < MIN_TOKEN_LENGTH:
            raise ConfigError(f"an internal token needs at least {MIN_TOKEN_LENGTH} characters")

    def metadata(self, trace_parent: str = "") -> Metadata:
        """What a client sends with every call."""
        pairs = []
        if self.token:
            pairs.append((TOKEN_KEY, f"Bearer {self.token}"))
        if trace_parent:
            pairs.append((TRACE_KEY, trace_parent))
        return tuple(pairs)

    def check(self, metadata: Mapping[str, str]) -> None:
        """Of a call that came in. Raises UnauthenticatedError."""
        given = metadata.get(TOKEN_KEY, "")
        if self.token and not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise UnauthenticatedError("the internal token is missing or another one")

    def check_address(self, host: str) -> None:
        """Raises ConfigError for a server that others than this machine could use unasked."""
        asks = bool(self.token) or (self.tls is not None and self.tls.ca is not None)
        if not asks and not _is_loopback(host):
            raise ConfigError(
                f"{host} can be reached from other machines: give an internal token, or TLS files "
                "with an authority for clients, or listen on 127.0.0.1"
            )


def text_values(pairs: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """Metadata that came, without what is binary."""
    return {key: value for key, value in pairs or () if isinstance(value, str)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: cannot read {path} ({error.strerror})") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may mean any address
