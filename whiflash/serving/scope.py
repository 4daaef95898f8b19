"""Whom a call's trajectories belong to. Nothing else in the package decides that."""

from __future__ import annotations

from whiflash.serving.caller import Caller
from whiflash.trajectories.scope import Owner


def owner_of(caller: Caller, subject: str = "") -> Owner:
    """The caller's tenant and project, and within them the end user where the call names one,
    unless the tenant lets its end users share. The engine makes a namespace of it, which says
    nothing about them."""
    return Owner(caller.tenant, caller.project, "" if caller.shares_users else subject)
