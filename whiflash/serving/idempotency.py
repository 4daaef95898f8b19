"""Calls that name a key of their own: the second one with it joins the first one's answer."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from whiflash.core.errors import InvalidRequestError
from whiflash.serving.call import GenerationCall
from whiflash.serving.caller import Caller
from whiflash.serving.flight import Flight

MAX_KEYS_PER_PROJECT = 128
KEEP_S = 600.0
MAX_KEY_LENGTH = 256


@dataclass(slots=True)
class KeyedCall:
    """digest: of the call, to tell a repetition from a mix-up. seed: kept when a call dies, so
    that its repetition writes the same text. flight: the running or finished call, if any."""

    digest: bytes
    seed: int
    began_s: float
    flight: Flight | None = None


class IdempotencyBook:
    """Keys by tenant and project, the least recently used forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._books: dict[tuple[str, str], OrderedDict[str, KeyedCall]] = {}

    def entry(self, caller: Caller, call: GenerationCall, seed: int) -> KeyedCall:
        """The entry of the call's key, made with `seed` if it is new or was forgotten. Raises
        InvalidRequestError if the key stands for another call."""
        key = call.idempotency_key
        if len(key) > MAX_KEY_LENGTH:
            raise InvalidRequestError(
                f"an idempotency key has at most {MAX_KEY_LENGTH} characters", "idempotency_key"
            )
        book = self._books.setdefault((caller.tenant, caller.project), OrderedDict())
        self._forget_old(book)
        digest = _digest(call)
        found = book.get(key)
        if found is None:
            found = book[key] = KeyedCall(digest, seed, self._clock())
        elif found.digest != digest:
            raise InvalidRequestError(
                "this idempotency key was used for another request; use a new one",
                "idempotency_key",
            )
        book.move_to_end(key)
        while len(book) > MAX_KEYS_PER_PROJECT:
            book.popitem(last=False)
        return found

    def _forget_old(self, book: OrderedDict[str, KeyedCall]) -> None:
        limit = self._clock() - KEEP_S
        for key in [key for key, entry in book.items() if entry.began_s < limit]:
            if (flight := book[key].flight) is None or flight.has_ended:
                del book[key]

    def check_integrity(self) -> None:
        assert all(len(book) <= MAX_KEYS_PER_PROJECT for book in self._books.values())


def _digest(call: GenerationCall) -> bytes:
    """Of all fields in the order of the client's own objects, which a repetition keeps."""
    return hashlib.blake2b(repr(call).encode("utf-8", "backslashreplace"), digest_size=16).digest()
