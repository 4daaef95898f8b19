"""Which namespace a call belongs to. Nothing else in the package decides that."""

from __future__ import annotations

import hashlib
import json

from whiflash.serving.caller import Caller

_DIGEST_BYTES = 16


def namespace_of(caller: Caller, subject: str = "") -> str:
    """A name for the scope of prefix reuse, trajectories and learned tables: the caller's tenant
    and project, and within them the end user `subject` where the call names one.

    Different triples have different names (JSON keeps their borders apart), and the name says
    nothing about them.
    """
    triple = json.dumps([caller.tenant, caller.project, subject]).encode()
    return hashlib.blake2b(triple, digest_size=_DIGEST_BYTES, person=b"whiflash-scope").hexdigest()
