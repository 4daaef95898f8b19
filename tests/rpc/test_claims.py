"""Two verifiers with one session, drafters that drain under load, ends of other versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whiflash.core.params import GenerationRequest
from whiflash.engine.ticket import Ticket
from whiflash.rpc.identity import identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.router_link import RouterLink
from whiflash.rpc.router_server import RouterServer
from whiflash.testing.engines import run, small_core
from whiflash.testing.hosts import ThreadHost, remote
from whiflash.testing.waiting import wait_for

World = Any
Ask = Callable[..., list[GenerationRequest]]


def ids(tickets: list[Ticket]) -> list[tuple[int, ...]]:
    return [ticket.result().choices[0].token_ids for ticket in tickets]


def drafted(tickets: list[Ticket]) -> int:
    return sum(ticket.result().choices[0].usage.arm("dflash").drafted for ticket in tickets)


def test_two_verifiers_with_one_session_do_not_meet(world: World, loop: RpcLoop, ask: Ask) -> None:
    """Same numbers of sequences, same texts, one drafter: each has states of its own."""
    plain = [c[0].token_ids for c in run(small_core(world.loaded), *ask(3))]
    host: Any
    with ThreadHost(world.server("dflash")) as host:
        drafters = [remote(loop, host.address, world.locals["dflash"]) for _ in range(2)]
        wait_for(lambda: all(drafter.is_up for drafter in drafters))
        cores = [small_core(world.loaded, {"dflash": d}, hold_ms=1000) for d in drafters]
        tickets = [[Ticket(request, 7) for request in ask(3)] for _ in cores]
        for core, own in zip(cores, tickets, strict=True):
            for ticket in own:
                core.submit(ticket)
        while any([core.step() for core in cores]):  # noqa: C419 - both, in turn
            pass
        assert [ids(own) for own in tickets] == [plain, plain]
        assert all(drafted(own) > 0 for own in tickets)
        assert [drafter.num_resyncs for drafter in drafters] == [0, 0]
        for core, drafter in zip(cores, drafters, strict=True):
            core.close()
            core.check_integrity()
            drafter.check_integrity()
        wait_for(lambda: len(host.server.desk.states) == 0)
        for drafter in drafters:
            drafter.shut()


def test_a_drafter_that_drains_under_load(world: World, loop: RpcLoop, ask: Ask) -> None:
    """Its verifiers go on without it, and draft again with the next one."""
    plain = [c[0].token_ids for c in run(small_core(world.loaded), *ask(4, 60))]
    host: Any
    with ThreadHost(world.server("dflash")) as host:
        drafter = remote(loop, host.address, world.locals["dflash"])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {"dflash": drafter}, hold_ms=1000)
        tickets = [Ticket(request, 7) for request in ask(4, 60)]
        for ticket in tickets:
            core.submit(ticket)
        for _ in range(8):
            core.step()
        openings = drafter.link.num_openings
        host.loop.run(host.server.drain(), 10.0)
        while core.step():
            pass
        assert ids(tickets) == plain
        assert drafted(tickets) > 0
        wait_for(lambda: drafter.is_up and drafter.link.num_openings > openings)
        again = [Ticket(request, 7) for request in ask(2)]
        for ticket in again:
            core.submit(ticket)
        while core.step():
            pass
        assert drafted(again) > 0
        core.check_integrity()
        drafter.shut()
    wait_for(lambda: host.server.servicer.sessions.num_streams == 0)


def test_a_router_refuses_another_version_naming_both(world: World, loop: RpcLoop) -> None:
    with ThreadHost(lambda: RouterServer("static", world.model)) as host:
        mine = identity(world.model, "")
        other = type(mine)()
        other.CopyFrom(mine)
        other.version = "0.0.0-other"
        curve = world.loaded.target.verify_curve
        link = RouterLink(loop, host.address, other, "static", curve)
        wait_for(lambda: "version 0.0.0-other there" in link.problem)
        assert mine.version in link.problem
        link.close()
