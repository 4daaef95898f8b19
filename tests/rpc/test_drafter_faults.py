"""Drafters that die, links that lose: the text stays, drafts come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from whiflash.core.params import GenerationRequest
from whiflash.engine.hold import MAX_PATIENCE
from whiflash.engine.ticket import Ticket
from whiflash.rpc.drafter_link import DrafterLink
from whiflash.rpc.identity import identity
from whiflash.rpc.loop import RpcLoop
from whiflash.testing.engines import drafted, ids, small_core
from whiflash.testing.hosts import ProcessHost, ThreadHost, remote
from whiflash.testing.relay import FaultyRelay
from whiflash.testing.waiting import wait_for

World = Any
Ask = Callable[..., list[GenerationRequest]]
NAMES = ("eagle3", "dflash")


@pytest.mark.parametrize("name", NAMES)
def test_kill_nine_of_a_drafter_in_mid_run(
    world: World, loop: RpcLoop, name: str, ask: Ask
) -> None:
    """Texts equal; the arm drafts before and after the restart."""
    plain = ids(small_core(world.loaded), ask(4, 60))
    with ProcessHost("drafter", world.options(name)) as host:
        drafter = remote(loop, host.address, world.locals[name])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {name: drafter}, hold_ms=1000)
        assert drafted(core, ask(2, 20), name) > 0
        tickets = [Ticket(request, 7) for request in ask(4, 60)]
        for ticket in tickets:
            core.submit(ticket)
        for _ in range(8):
            core.step()
        first = drafter.link.incarnation
        host.kill()
        while core.step():
            pass
        assert [t.result().choices[0].token_ids for t in tickets] == plain
        host.start()
        wait_for(lambda: drafter.is_up and drafter.link.incarnation != first)
        assert drafted(core, ask(4, 30), name) > 0
        assert ids(core, ask(4, 60)) == plain
        core.check_integrity()
        drafter.shut()


def test_a_hole_in_what_is_held_is_mended_by_a_resync(
    world: World, loop: RpcLoop, ask: Ask
) -> None:
    plain = ids(small_core(world.loaded), ask(3))
    with ThreadHost(world.server("eagle3")) as host:
        drafter = remote(loop, host.address, world.locals["eagle3"])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {"eagle3": drafter}, hold_ms=1000)
        tickets = [Ticket(request, 7) for request in ask(3)]
        for ticket in tickets:
            core.submit(ticket)
        for step in range(400):
            if step in (6, 12):
                host.server.desk.submit(
                    lambda: host.server.desk.states.close(list(host.server.desk.states._held))
                )
            if not core.step():
                break
        assert [t.result().choices[0].token_ids for t in tickets] == plain
        assert drafter.num_resyncs > 0
        assert sum(t.result().choices[0].usage.arm("eagle3").drafted for t in tickets) > 0
        drafter.shut()


def test_a_memory_budget_lets_the_idle_go(world: World, loop: RpcLoop, ask: Ask) -> None:
    plain = ids(small_core(world.loaded), ask(6))
    one = 128 * world.locals["eagle3"].cache_bytes_per_token
    with ThreadHost(world.server("eagle3", max_bytes=3 * one)) as host:
        drafter = remote(loop, host.address, world.locals["eagle3"])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {"eagle3": drafter}, hold_ms=1000)
        assert ids(core, ask(6)) == plain
        assert host.server.desk.states.num_dropped > 0
        assert host.server.desk.drafter.num_bytes <= 3 * one
        drafter.shut()


@pytest.mark.parametrize("fault", ["slow", "black hole", "cut"])
def test_bad_links_cost_speed_only(world: World, loop: RpcLoop, ask: Ask, fault: str) -> None:
    plain = ids(small_core(world.loaded), ask(3))
    with (
        ThreadHost(world.server("dflash")) as host,
        FaultyRelay(int(host.address.rpartition(":")[2])) as relay,
    ):
        drafter = remote(loop, relay.target, world.locals["dflash"])
        wait_for(lambda: drafter.is_up)
        core = small_core(world.loaded, {"dflash": drafter}, hold_ms=50)
        assert drafted(core, ask(2, 20), "dflash") > 0
        if fault == "slow":
            relay.delay_s = 0.02
        elif fault == "black hole":
            relay.is_black_hole = True
        else:
            relay.cut()
        assert ids(core, ask(3)) == plain
        if fault == "black hole":
            wait_for(lambda: not drafter.is_up)
        relay.heal()
        wait_for(lambda: drafter.is_up)
        # More rounds than one that was late is passed over.
        assert drafted(core, ask(2, MAX_PATIENCE + 20), "dflash") > 0
        assert ids(core, ask(3)) == plain
        drafter.shut()


def test_a_stale_epoch_and_other_weights_are_refused_in_words(world: World, loop: RpcLoop) -> None:
    with ThreadHost(world.server("eagle3")) as host:
        hash_ = world.locals["eagle3"].weight_hash
        mine = identity(world.model, world.tokenizer, (1, 2), hash_)
        wrong = identity(world.model, world.tokenizer, (1, 2), "another hash")
        link = DrafterLink(loop, host.address, wrong, list)
        wait_for(lambda: "drafter weights another hash there" in link.problem)
        assert hash_ in link.problem
        link.close()
        fresh = DrafterLink(loop, host.address, mine, list)
        wait_for(lambda: fresh.is_up)
        old = DrafterLink(loop, host.address, mine, list)
        wait_for(lambda: old.is_up)
        old.close()
        old.client, old.epoch = fresh.client, -1
        loop.run(old._start())
        wait_for(lambda: "stale epoch 0" in old.problem)
        assert fresh.is_up
        fresh.close()
        old.close()


def test_another_version_is_refused_naming_both(world: World, loop: RpcLoop) -> None:
    with ThreadHost(world.server("eagle3")) as host:
        mine = host.server.servicer.identity
        other = type(mine)()
        other.CopyFrom(mine)
        other.version = "0.0.0-other"
        link = DrafterLink(loop, host.address, other, list)
        wait_for(lambda: "version 0.0.0-other there" in link.problem)
        assert mine.version in link.problem
        link.close()


def test_health_and_reflection_are_served(world: World) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with ThreadHost(world.server("eagle3")) as host, grpc.insecure_channel(host.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="whiflash.rpc.v1.DrafterService")
        assert stub.Check(asked, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
