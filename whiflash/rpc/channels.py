"""Channels to our own processes."""

from __future__ import annotations

import grpc

from whiflash.rpc.access import Access
from whiflash.rpc.sealed_channel import SealedChannel

MAX_FRAME_BYTES = 1 << 20
"""Of streams: a message beyond it would hold up the small ones behind it."""

MAX_MESSAGE_BYTES = MAX_FRAME_BYTES + (64 << 10)
"""What is read: a frame and the fields around it."""

Options = tuple[tuple[str, int | str], ...]

_OPTIONS: Options = (
    ("grpc.use_local_subchannel_pool", 1),  # a new link must not wait in an old one's back-off
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),  # rounds are never repeated by the transport
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


def open_channel(
    address: str, access: Access | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> SealedChannel:
    """A channel to host:port, for the event loop of the caller. The token is not in it: send
    `access.metadata()` with each call. Raises ConfigError where TLS files are missing."""
    options: list[tuple[str, int | str]] = [
        *_OPTIONS,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
    ]
    tls = access.tls if access is not None else None
    if tls is None:
        return SealedChannel(grpc.aio.insecure_channel(address, options=options))
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return SealedChannel(
        grpc.aio.secure_channel(address, tls.channel_credentials(), options=options)
    )
