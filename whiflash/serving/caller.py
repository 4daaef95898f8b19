"""Who calls, what they may do, and what belongs to one call whatever protocol brought it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """What a key may do."""

    GENERATE = "generate"
    STORE = "store"  # import, export and delete trajectories
    DEBUG = "debug"  # usage per arm: an oracle on the store's content (design.md 8)
    ADMIN = "admin"


ALL_SCOPES: frozenset[Scope] = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a key. `tenant` and `project` bound every namespace the call may touch;
    `key_id` is a public name of the key, fit for logs. `shares_users`: the tenant has its end
    users draft from one another's turns in this project."""

    tenant: str
    project: str
    scopes: frozenset[Scope]
    key_id: str
    shares_users: bool = False

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


LOCAL_CALLER = Caller("local", "default", ALL_SCOPES, "keyless")
"""Everybody on a server without keys, which binds to 127.0.0.1 only."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call. Cancelling it is cancelling the task that awaits the method.

    request_id:   given by the client or made here; in logs and answers.
    deadline_s:   time.monotonic() value after which the answer is of no use; None for none.
    trace_parent: W3C traceparent, "" for none.
    """

    caller: Caller
    request_id: str
    deadline_s: float | None = None
    trace_parent: str = ""
    received_s: float = field(default_factory=time.monotonic)

    def remaining_s(self) -> float | None:
        """Seconds until the deadline, not below 0; None without one."""
        if self.deadline_s is None:
            return None
        return max(0.0, self.deadline_s - time.monotonic())
