"""All verifiers that a gateway knows: who lives, who fits, who gets the next request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from whiflash.core.params import GenerationRequest
from whiflash.rpc.access import Access
from whiflash.serving.remote.description import Description, Identity
from whiflash.serving.remote.directory import Directory
from whiflash.serving.remote.faults import NoVerifierError
from whiflash.serving.remote.leases import Lease, LeaseBook
from whiflash.serving.remote.link import VerifierLink
from whiflash.serving.remote.placement import PrefixMemory, place, rendezvous, request_key

logger = logging.getLogger("whiflash.gateway")

LOOK_S = 0.1
"""How often the directory is read, and how soon a waiting request sees a new verifier."""


@dataclass(frozen=True, slots=True)
class VerifierStatus:
    """One verifier, for `whiflash status`. problem: why it gets no requests, "" where it does."""

    address: str
    incarnation: str
    is_live: bool
    running: int
    waiting: int
    problem: str


class VerifierPool:
    """Links to every address of the directory. For one event loop: `open`, then `first`.

    The first verifier that answers decides what is served; others of another identity are not
    used, and `status` says why. leases: set where gateways share a Redis.
    """

    def __init__(self, directory: Directory, access: Access | None = None) -> None:
        self._directory = directory
        self._access = access
        self._links: dict[str, VerifierLink] = {}
        self._retired: set[VerifierLink] = set()
        self._prefixes = PrefixMemory()
        self.leases: LeaseBook | None = None
        self._identity: Identity | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begins to look for verifiers."""
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Requests that still run are lost. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        links = [*self._links.values(), *self._retired]
        await asyncio.gather(*(link.close() for link in links))
        if self.leases is not None:
            await self.leases.close()
        self._links.clear()
        self._retired.clear()

    async def first(self, timeout_s: float) -> Description:
        """The first verifier that takes requests. Raises NoVerifierError if none came in time."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            for link in self._links.values():
                if link.is_live and link.description is not None:
                    self._identity = link.description.identity
                    return link.description
            await asyncio.sleep(LOOK_S)
        raise NoVerifierError(
            f"no verifier took requests within {timeout_s:g} s: {self._problems()}"
        )

    def live(self) -> list[VerifierLink]:
        """Those that take requests and fit."""
        return [link for link in self._links.values() if not self._problem(link)]

    @property
    def num_running(self) -> int:
        """Requests at verifiers, those on their way out included."""
        return sum(link.num_running for link in (*self._links.values(), *self._retired))

    async def choose(
        self, request: GenerationRequest, avoid: Collection[str], patience_s: float
    ) -> VerifierLink:
        """The verifier for a request; those in `avoid` only where there is no other. Waits up to
        `patience_s` for one to come. Raises NoVerifierError."""
        end_s = time.monotonic() + patience_s
        lease = await self._lease(request)
        while not (live := self.live()):
            if time.monotonic() >= end_s:
                raise NoVerifierError(f"no verifier takes requests: {self._problems()}")
            await asyncio.sleep(LOOK_S)
        fitting = {link.address: link for link in live if link.address not in avoid}
        candidates = fitting or {link.address: link for link in live}
        chosen = candidates[self._place(request, candidates, lease)]
        self._note(request, chosen)
        return chosen

    def status(self) -> list[VerifierStatus]:
        """Every address that the directory names, in their order."""
        return [self._status(link) for _, link in sorted(self._links.items())]

    async def _lease(self, request: GenerationRequest) -> Lease | None:
        """Sessions that name themselves have one: beginnings of prompts are shared by many."""
        if self.leases is None or not request.run_id:
            return None
        return await self.leases.find(request_key(request))

    def _note(self, request: GenerationRequest, link: VerifierLink) -> None:
        self._prefixes.note(request, link.address)
        if self.leases is not None and request.run_id and link.description is not None:
            lease = Lease(link.address, link.description.incarnation)
            self.leases.note(request_key(request), lease)

    def _place(
        self, request: GenerationRequest, links: dict[str, VerifierLink], lease: Lease | None
    ) -> str:
        """The lease counts most: it tells of what other gateways have sent too."""
        order = rendezvous(request_key(request), list(links))
        known = self._prefixes.find(request)
        if lease is not None and _holds(links.get(lease.address), lease):
            known = lease.address
        if known in links:
            order.remove(known)
            order.insert(0, known)
        return place(order, {address: _load(link) for address, link in links.items()})

    async def _follow(self) -> None:
        while True:
            self._update(self._directory.addresses())
            for link in [link for link in self._retired if not link.num_running]:
                self._retired.discard(link)
                await link.close()
            await asyncio.sleep(LOOK_S)

    def _update(self, addresses: frozenset[str]) -> None:
        """A verifier that left the directory may still end what it has begun."""
        for address in self._links.keys() - addresses:
            self._retired.add(self._links.pop(address))
        for address in addresses - self._links.keys():
            link = self._links[address] = VerifierLink(address, self._access)
            link.open()

    def _problem(self, link: VerifierLink) -> str:
        """Why it cannot be used, "" where it can."""
        if link.description is None or link.state is None:
            return link.problem
        if link.state.is_draining:
            return "it is draining"
        if not link.state.is_ready:
            return "it is not ready"
        if self._identity is None:
            return ""
        differences = link.description.identity.differences(self._identity)
        return f"it has {differences}" if differences else ""

    def _problems(self) -> str:
        found = [f"{link.address}: {self._problem(link)}" for link in self._links.values()]
        return "; ".join(found) or "none is known"

    def _status(self, link: VerifierLink) -> VerifierStatus:
        problem = self._problem(link)
        load = link.state.load if link.state is not None else None
        return VerifierStatus(
            link.address,
            link.description.incarnation if link.description is not None else "",
            not problem,
            load.running if load is not None else 0,
            load.waiting if load is not None else 0,
            problem,
        )

    def __iter__(self) -> Iterator[VerifierLink]:
        return iter(self._links.values())

    def check_integrity(self) -> None:
        assert not self._retired & set(self._links.values()), "a link is both used and retired"
        for link in (*self._links.values(), *self._retired):
            link.check_integrity()
        if self.leases is not None:
            self.leases.check_integrity()


def _holds(link: VerifierLink | None, lease: Lease) -> bool:
    """It is still the one of the lease: one that was started anew has lost what it had."""
    return (
        link is not None
        and link.description is not None
        and link.description.incarnation == lease.incarnation
    )


def _load(link: VerifierLink) -> float:
    """Requests per slot, as far as this gateway knows: its own are counted at once, those of
    other gateways at the next sign of life."""
    if link.description is None or link.state is None:
        return 1.0
    load = link.state.load
    return max(link.num_running, load.running + load.waiting) / max(link.description.model.slots, 1)
