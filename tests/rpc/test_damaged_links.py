"""Bytes that arrive otherwise than they were sent: the stream fails in words, the text stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whiflash.core.params import GenerationRequest
from whiflash.engine.hold import MAX_PATIENCE
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.remote_policy import DOWN, REMOTE, RemotePolicy
from whiflash.rpc.router_server import RouterServer
from whiflash.testing.engines import drafted, ids, small_core
from whiflash.testing.hosts import ThreadHost, remote
from whiflash.testing.relay import DAMAGES, FAULTS, FaultyRelay
from whiflash.testing.waiting import wait_for

World = Any
Ask = Callable[..., list[GenerationRequest]]


@pytest.mark.parametrize(
    ("name", "damage"), [("eagle3", "flip"), *(("dflash", damage) for damage in DAMAGES)]
)
def test_a_damaged_way_to_a_drafter(
    world: World, loop: RpcLoop, ask: Ask, name: str, damage: str
) -> None:
    plain = ids(small_core(world.loaded), ask(3))
    with (
        ThreadHost(world.server(name)) as host,
        FaultyRelay(int(host.address.rpartition(":")[2])) as relay,
    ):
        drafter = remote(loop, relay.target, world.locals[name])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {name: drafter}, hold_ms=50)
        assert drafted(core, ask(2, 20), name) > 0
        relay.damage = damage
        problems = set()
        for _ in range(20):
            assert ids(core, ask(3)) == plain
            problems.add(drafter.link.problem)
            if relay.num_damaged_chunks > 2 and len(problems - {""}) > 0:
                break
        assert relay.num_damaged_chunks > 0
        assert problems - {""}, "nobody noticed"
        relay.heal()
        wait_for(lambda: drafter.is_up)
        assert drafted(core, ask(1, MAX_PATIENCE + 20), name) > 0, "passed over for good"
        assert ids(core, ask(3)) == plain
        core.check_integrity()
        drafter.shut()
        wait_for(lambda: host.server.servicer.sessions.num_streams == 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_way_to_the_router(world: World, loop: RpcLoop, ask: Ask, fault: str) -> None:
    """The snapshot stands in; the router decides again once the way is good."""
    curve = world.loaded.target.verify_curve
    plain = ids(small_core(world.loaded), ask(3))
    make = lambda: RouterServer("static:arm=dflash", world.model)  # noqa: E731
    with (
        ThreadHost(make) as host,
        FaultyRelay(int(host.address.rpartition(":")[2])) as relay,
    ):
        policy = RemotePolicy("static:arm=dflash", loop, relay.target, curve, world.model, 0.05)
        wait_for(lambda: policy.link.is_up)
        core = small_core(world.loaded, {"dflash": world.make("dflash")}, policy)
        assert drafted(core, ask(2, 20), "dflash") > 0
        relay.spoil(fault)
        for _ in range(1 if fault == "slow" else 3):
            assert ids(core, ask(3)) == plain
        if fault in ("black hole", "held"):
            wait_for(lambda: not policy.link.is_up)
            assert ids(core, ask(3)) == plain
            assert policy.decisions[DOWN] > 0
        relay.heal()
        before = policy.decisions[REMOTE]

        def decides_again() -> bool:
            assert drafted(core, ask(2, 20), "dflash") > 0
            return policy.decisions[REMOTE] > before

        wait_for(decides_again)
        policy.shut()
        wait_for(lambda: host.server.servicer.sessions.num_streams == 0)
