"""Who a call's credentials belong to."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from whiflash.core.errors import PermissionDeniedError, UnauthenticatedError
from whiflash.serving.caller import LOCAL_CALLER, Caller, Scope
from whiflash.serving.keys import ApiKey, KeyLimits, digest_of

_NO_LIMITS = KeyLimits()
_MAX_SECRET_LENGTH = 512


class Authenticator:
    """Knows the keys of a server. Without any, everybody is the local caller with all scopes:
    such a server binds to loopback addresses only."""

    def __init__(self, keys: Sequence[ApiKey] = ()) -> None:
        self._keys = tuple(keys)
        self._limits = {key.caller.key_id: key.limits for key in keys}

    @property
    def is_keyless(self) -> bool:
        return not self._keys

    def caller(self, authorization: str | None) -> Caller:
        """The owner of an Authorization value, `Bearer KEY`. On a server without keys the value
        is not looked at: clients often send a placeholder. Raises UnauthenticatedError."""
        if self.is_keyless:
            return LOCAL_CALLER
        secret = _bearer(authorization)
        digest = digest_of(secret)
        found: Caller | None = None
        for key in self._keys:  # all of them: the time must not tell which one came close
            if hmac.compare_digest(key.digest, digest):
                found = key.caller
        if found is None:
            raise UnauthenticatedError("this API key is not known here; check it")
        return found

    def limits(self, caller: Caller) -> KeyLimits:
        return self._limits.get(caller.key_id, _NO_LIMITS)


def require(caller: Caller, scope: Scope) -> None:
    """Raises PermissionDeniedError naming the scope that the key lacks."""
    if not caller.may(scope):
        raise PermissionDeniedError(f"this key lacks the scope {str(scope)!r}")


def _bearer(authorization: str | None) -> str:
    scheme, _, secret = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise UnauthenticatedError("an API key is needed: send Authorization: Bearer KEY")
    if len(secret) > _MAX_SECRET_LENGTH:
        raise UnauthenticatedError("this API key is not known here; check it")
    return secret.strip()
