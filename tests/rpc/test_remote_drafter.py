"""Drafters in other processes: same text, real drafts, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from whiflash.core.params import GenerationRequest
from whiflash.core.results import Completion
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.remote_drafter import RemoteTapDrafter
from whiflash.testing.engines import run, small_core
from whiflash.testing.hosts import ThreadHost, remote
from whiflash.testing.waiting import wait_for

NAMES = ("eagle3", "dflash")
World = Any
Ask = Callable[..., list[GenerationRequest]]


def texts(done: Sequence[Sequence[Completion]]) -> list[tuple[int, ...]]:
    return [choice.token_ids for choices in done for choice in choices]


def drafted(done: Sequence[Sequence[Completion]], arm: str) -> int:
    usages = [choice.usage.arms.get(arm) for choices in done for choice in choices]
    return sum(usage.drafted for usage in usages if usage is not None)


def up(drafter: RemoteTapDrafter) -> RemoteTapDrafter:
    wait_for(lambda: drafter.is_up, 10.0)
    return drafter


@pytest.mark.parametrize("name", NAMES)
def test_remote_and_local_drafts_are_the_same(
    world: World, loop: RpcLoop, name: str, ask: Ask
) -> None:
    """The same trees, so the same rounds: what travels is all that a drafter needs."""
    plain = run(small_core(world.loaded), *ask(4))
    local = run(small_core(world.loaded, {name: world.make(name)}), *ask(4))
    with ThreadHost(world.server(name)) as host:
        drafter = up(remote(loop, host.address, world.locals[name]))
        core = small_core(world.loaded, {name: drafter}, hold_ms=1000)
        done = run(core, *ask(4))
        assert texts(done) == texts(local) == texts(plain)
        assert drafted(done, name) == drafted(local, name) > 0
        rounds = [[c.usage.rounds for c in choices] for choices in done]
        assert rounds == [[c.usage.rounds for c in choices] for choices in local]
        assert drafter.num_resyncs == 0
        desk = host.server.desk
        core.close()
        wait_for(lambda: len(desk.states) == 0, 10.0)
        desk.states.check_integrity()
        assert desk.drafter.num_bytes == 0
        drafter.shut()
        wait_for(lambda: host.server.servicer.sessions.num_streams == 0, 10.0)
