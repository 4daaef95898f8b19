"""Which verifier a request goes to: where its prefix is, else where its hash points, unless that
one is busy (rendezvous hashing: Thaler, Ravishankar 1998; bounded loads: Mirrokni et al. 2018)."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from whiflash.core.params import GenerationRequest

BLOCK_TOKENS = 32
"""Prefixes are remembered at every so many tokens."""

MAX_BLOCKS = 65_536
LOAD_BOUND = 1.25
"""A verifier may have so many times the average before its requests go elsewhere."""

FREE_LOAD = 0.125
"""Of its slots: up to here it is not busy, whatever the others do."""


def request_key(request: GenerationRequest) -> bytes:
    """What keeps a session together: its run, else the beginning of its prompt."""
    if request.run_id:
        return _digest(request.namespace, request.run_id.encode())
    return _digest(request.namespace, _bytes(request.prompt_ids[:BLOCK_TOKENS]))


def rendezvous(key: bytes, addresses: Sequence[str]) -> list[str]:
    """All addresses, the key's own first. When one goes, only its keys move."""
    return sorted(
        addresses,
        key=lambda address: hashlib.blake2b(address.encode(), key=key, digest_size=8).digest(),
    )


def place(order: Sequence[str], load: Mapping[str, float]) -> str:
    """The first of `order` that is not busy beside the others, else the least loaded. Load is
    requests per slot. Needs at least one address."""
    average = sum(load[address] for address in order) / len(order)
    bound = max(LOAD_BOUND * average, FREE_LOAD)
    for address in order:
        if load[address] <= bound and load[address] < 1.0:
            return address
    return min(order, key=lambda address: load[address])


class PrefixMemory:
    """Which verifier has seen a prefix last, by hashes of blocks within a namespace; the longest
    known prefix counts, the least recently used blocks are forgotten."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._seen: OrderedDict[bytes, str] = OrderedDict()

    def find(self, request: GenerationRequest) -> str | None:
        """Where the longest prefix of the prompt was, None if no block of it is known."""
        found: str | None = None
        for block in _blocks(request.namespace, request.prompt_ids):
            address = self._seen.get(block)
            if address is None:
                break
            found = address
        return found

    def note(self, request: GenerationRequest, address: str) -> None:
        """The request's prompt is there now."""
        for block in _blocks(request.namespace, request.prompt_ids):
            self._seen[block] = address
            self._seen.move_to_end(block)
        while len(self._seen) > self._max_blocks:
            self._seen.popitem(last=False)

    def __len__(self) -> int:
        return len(self._seen)


def _blocks(namespace: str, ids: Sequence[int]) -> Iterator[bytes]:
    """A digest per whole block, of all up to its end."""
    digest = hashlib.blake2b(namespace.encode(), digest_size=16)
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        digest.update(_bytes(ids[start : start + BLOCK_TOKENS]))
        yield digest.digest()


def _bytes(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _digest(namespace: str, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=namespace.encode()[:64], digest_size=16).digest()
