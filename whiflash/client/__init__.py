"""The typed client of a WhiFlash server. Needs grpcio and protobuf, nothing else."""

from __future__ import annotations

from whiflash.api.v1.generation_service_pb2 import Choice, GenerateOnceResponse
from whiflash.api.v1.stream_pb2 import (
    AssistantMessage,
    Ended,
    FinishReason,
    ParseEvent,
    ParseEventKind,
    Piece,
    Queued,
    Started,
    Usage,
)
from whiflash.client.async_client import AsyncClient
from whiflash.client.chat import Chat, history_message
from whiflash.client.connection import CallSettings
from whiflash.client.errors import (
    CallError,
    CancelledError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ResumeError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
)
from whiflash.client.options import CallOptions, Prompt
from whiflash.client.resumption import StreamEvent
from whiflash.client.store import Recording
from whiflash.client.sync_client import Client

__all__ = [
    "AssistantMessage",
    "AsyncClient",
    "CallError",
    "CallOptions",
    "CallSettings",
    "CancelledError",
    "Chat",
    "Choice",
    "Client",
    "DeadlineError",
    "Ended",
    "FinishReason",
    "GenerateOnceResponse",
    "InvalidArgumentError",
    "NotFoundError",
    "ParseEvent",
    "ParseEventKind",
    "PermissionDeniedError",
    "Piece",
    "Prompt",
    "Queued",
    "Recording",
    "ResourceExhaustedError",
    "ResumeError",
    "ServerError",
    "Started",
    "StreamEvent",
    "UnauthenticatedError",
    "UnavailableError",
    "Usage",
    "history_message",
]
