"""Drafters that come back with other weights, routers that come back with another policy: taken
over by a running engine, whose texts stay and whose target is not touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from whiflash.core.errors import ConfigError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.drafters.dflash import DFlashDrafter
from whiflash.drafters.dflash import load as load_dflash
from whiflash.drafters.eagle3 import Eagle3Options
from whiflash.drafters.eagle3 import load as load_eagle3
from whiflash.engine.core import EngineCore
from whiflash.engine.ticket import Ticket
from whiflash.models.draft.fuse import make_fuse
from whiflash.models.draft.target_parts import TargetParts
from whiflash.routing.costs import CostModel
from whiflash.routing.setting import PolicySetting
from whiflash.rpc.following_drafter import FollowingTapDrafter
from whiflash.rpc.fuse_file import fuse_bytes, read_fuse
from whiflash.rpc.identity import identity
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.policy_state import load_policy
from whiflash.rpc.remote_policy import REMOTE, RemotePolicy
from whiflash.rpc.router_server import RouterServer
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.engines import drafted, ids, run, small_core
from whiflash.testing.hosts import ThreadHost, drafter_server, toy_drafter
from whiflash.testing.toy import write_toy
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3
from whiflash.testing.waiting import wait_for

WRITERS: dict[str, Callable[..., Path]] = {"eagle3": write_toy_eagle3, "dflash": write_toy_dflash}


@dataclass(frozen=True)
class World:
    loaded: LoadedTarget
    folder: Path
    drafters: Path

    @property
    def model(self) -> str:
        return self.loaded.target.info.fingerprint

    def make(self, name: str, seed: int) -> TapDrafter:
        folder = self.drafters / f"{name}{seed}"
        return toy_drafter(name, self.folder, folder)

    def host(self, name: str, seed: int, port: int = 0) -> ThreadHost:
        tokenizer = self.loaded.tokenizer.fingerprint
        return ThreadHost(
            lambda: drafter_server(lambda: self.make(name, seed), self.model, tokenizer, port=port)
        )

    def follower(self, loop: RpcLoop, name: str, address: str) -> FollowingTapDrafter:
        who = identity(self.model, self.loaded.tokenizer.fingerprint)
        return FollowingTapDrafter(
            name, loop, address, who, lambda weights: make_fuse(weights, torch.device("cpu"))
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder, drafters = write_toy(tmp_path_factory.mktemp("t")), tmp_path_factory.mktemp("d")
    for name, write in WRITERS.items():
        for seed in (1, 2):
            write(drafters / f"{name}{seed}", seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        loaded = load_target(str(folder), dtype="float64")
    return World(loaded, folder, drafters)


@pytest.fixture
def loop() -> Iterator[RpcLoop]:
    made = RpcLoop()
    yield made
    made.close()


def requests(count: int, max_tokens: int = 40) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            tuple(range(5 + number, 30 + number)),
            SamplingParams(
                max_tokens=max_tokens, ignore_eos=True, seed=number, temperature=0.8 * (number % 2)
            ),
        )
        for number in range(count)
    ]


def taken_over(core: EngineCore, drafter: FollowingTapDrafter, number: int) -> None:
    """Steps an engine, idle or not, until its drafter is the `number`-th one and up."""

    def is_there() -> bool:
        core.step()
        return drafter.num_taken_over == number and drafter.is_up

    wait_for(is_there, 20, f"number {number} was not taken over: {drafter.link.problem}")


@pytest.mark.parametrize("name", sorted(WRITERS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_taps_are_fused_here_bit_for_bit_as_there(
    world: World, name: str, dtype: torch.dtype
) -> None:
    parts = TargetParts.of_folder(world.folder, dtype, torch.device("cpu"))
    folder = world.drafters / f"{name}1"
    theirs: Any = (
        DFlashDrafter(load_dflash(folder, parts))
        if name == "dflash"
        else load_eagle3(folder, parts, Eagle3Options(boundaries=(1, 2)))
    )
    here = make_fuse(read_fuse(fuse_bytes(theirs.fuse_weights())), torch.device("cpu"))
    width = theirs.fuse_weights().fc.shape[1]
    taps = torch.randn(37, width, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert torch.equal(here(taps), theirs.fuse(taps))
    assert here(taps).dtype == dtype


def test_what_is_no_fuse_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no fuse weights"):
        read_fuse(b"not a file")


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_drafter_that_comes_back_with_other_weights_drafts_on(
    world: World, loop: RpcLoop, name: str
) -> None:
    """It comes back in the middle of turns; then all of it is that of an engine which never had
    another drafter: the same drafts, the same texts."""
    plain = ids(small_core(world.loaded), requests(4, 60))
    target = world.loaded.target
    with world.host(name, 1) as first:
        port = int(first.address.rpartition(":")[2])
        drafter = world.follower(loop, name, first.address)
        assert drafter.weight_hash == ""
        core = small_core(world.loaded, {name: drafter}, hold_ms=1000)
        taken_over(core, drafter, 1)
        old = drafter.weight_hash
        assert drafted(core, requests(3), name) > 0
        tickets = [Ticket(request, 7) for request in requests(4, 60)]
        for ticket in tickets:
            core.submit(ticket)
        for _ in range(8):
            core.step()
        assert core.arms.memory._reserved
    with world.host(name, 2, port):
        taken_over(core, drafter, 2)
        assert drafter.weight_hash not in ("", old)
        assert list(target._tap_sources) == [drafter.weight_hash]
        for _ in range(2000):
            core.check_integrity()
            if not core.step():
                break
        assert [t.result().choices[0].token_ids for t in tickets] == plain
        fresh = small_core(world.loaded, {name: world.make(name, 2)})
        expected = run(fresh, *requests(4, 60))
        got = run(core, *requests(4, 60))
        assert [c[0].token_ids for c in got] == plain
        assert sum(c[0].usage.arm(name).drafted for c in got) > 0
        assert sum(c[0].usage.arm(name).accepted for c in got) > 0
        assert [c[0].token_ids for c in expected] == plain
        drafter.shut()
    target.drop_taps(drafter.weight_hash)


def test_costs_and_worth_of_the_arm_are_forgotten(world: World, loop: RpcLoop) -> None:
    with world.host("eagle3", 1) as first:
        drafter = world.follower(loop, "eagle3", first.address)
        drafters = {"eagle3": drafter, "dflash": world.make("dflash", 1)}
        dflash = drafters["dflash"]
        world.loaded.target.keep_taps(dflash.weight_hash, dflash.boundaries, dflash.fuse)
        core = small_core(world.loaded, drafters, "goodput", hold_ms=1000)
        taken_over(core, drafter, 1)
        run(core, *requests(6, 80))
        costs, port = core._router.costs, int(first.address.rpartition(":")[2])
        assert costs.draft_ms("eagle3", 1) > 0
        before = costs.draft_ms("dflash", 1)
    with world.host("eagle3", 2, port):
        taken_over(core, drafter, 2)
        assert costs.draft_ms("eagle3", 1) == 0.0
        assert costs.draft_ms("dflash", 1) == before
        space = core._router.policy._table._spaces.values()
        keys = [key for table in space for key in table]
        assert not [key for key in keys if "eagle3" in (key, key[0])]
        assert ids(core, requests(3)) == ids(small_core(world.loaded), requests(3))
        core._router.policy.check_integrity()
        drafter.shut()
    for hash_ in (drafter.weight_hash, dflash.weight_hash):
        world.loaded.target.drop_taps(hash_)


def test_another_target_is_not_followed(world: World, loop: RpcLoop) -> None:
    with world.host("eagle3", 1) as host:
        who = identity("another target", world.loaded.tokenizer.fingerprint)
        drafter = FollowingTapDrafter("eagle3", loop, host.address, who, make_fuse)  # type: ignore[arg-type]
        wait_for(lambda: "target" in drafter.link.problem, 10, "it was not refused")
        assert world.model in drafter.link.problem
        assert not drafter.take_over()
        drafter.shut()


def test_a_new_policy_at_the_router_reaches_the_engine(world: World, loop: RpcLoop) -> None:
    """Texts equal; the router decides by it, what it asks of the engine is asked, and a policy
    that does not fit leaves the old one in charge."""
    curve = world.loaded.target.verify_curve
    plain = ids(small_core(world.loaded), requests(4))
    dflash = world.make("dflash", 1)
    world.loaded.target.keep_taps(dflash.weight_hash, dflash.boundaries, dflash.fuse)
    with ThreadHost(lambda: RouterServer("goodput", world.model)) as host:
        policy = RemotePolicy(
            "goodput", loop, host.address, curve, world.model, deadline_s=0.2, follows=True
        )
        policy.check_setting(PolicySetting(("dflash",), 64, world.model))
        wait_for(lambda: policy.link.is_up, 10, "no router")
        core = small_core(world.loaded, {"dflash": dflash}, policy)
        assert ids(core, requests(4)) == plain
        assert policy.may_rest
        number = policy.version

        def change(text: str) -> None:
            async def on_its_loop() -> None:
                host.server.change_policy(text)

            host.loop.run(on_its_loop(), 10)

        change("static:arm=dflash")
        assert drafted(core, requests(4), "dflash") > 0
        assert policy.text == "static:arm=dflash"
        assert policy.version > number
        assert not policy.may_rest
        assert core._router._rests is None
        assert ids(core, requests(4)) == plain
        change("entropy:tau=1.2,below=ddtree")
        asked = policy.decisions[REMOTE]
        assert ids(core, requests(2)) == plain[:2]
        assert "ddtree" in policy.problem
        assert policy.text == "static:arm=dflash"
        assert policy.decisions[REMOTE] == asked
        change("goodput")
        assert ids(core, requests(4)) == plain
        assert policy.problem == ""
        assert policy.may_rest
        policy.shut()
    world.loaded.target.drop_taps(dflash.weight_hash)


def test_rows_rest_under_a_router_elsewhere_and_its_decisions_are_those_of_its_version(
    world: World, loop: RpcLoop
) -> None:
    """Resting rows are not asked for; those that are get what a copy of the version says, and the
    outcomes that the learner hears of are of rows that were asked for, with the version that chose
    and the certainty of a policy without chance."""
    curve = world.loaded.target.verify_curve
    dflash = world.make("dflash", 1)
    world.loaded.target.keep_taps(dflash.weight_hash, dflash.boundaries, dflash.fuse)
    with ThreadHost(lambda: RouterServer("goodput", world.model, publish_outcomes=10**9)) as host:
        policy = RemotePolicy("goodput", loop, host.address, curve, world.model, deadline_s=1.0)
        wait_for(lambda: policy.link.is_up and policy.link.state is not None, 10, "no router")
        shadow = load_policy(host.server.servicer.versions.data, CostModel(curve))
        asked: list[tuple[Any, Any]] = []
        predict = policy.predict

        def noted(rows: Any) -> Any:
            answer = predict(rows)
            asked.append((list(rows), answer))
            return answer

        policy.predict = noted  # type: ignore[method-assign]
        core = small_core(world.loaded, {"dflash": dflash}, policy)
        told: list[Any] = []
        send = policy.link.send
        policy.link.send = lambda request: (told.append(request), send(request))  # type: ignore[method-assign,assignment,return-value]
        dead = EngineProbe(core)
        done = run(core, *requests(6, 200))
        assert [c[0].token_ids for c in done] == ids(small_core(world.loaded), requests(6, 200))
        assert dead.num_resting > 0, "no row ever rested"
        assert policy.decisions[REMOTE] == sum(policy.decisions.values()) > 0
        for rows, answer in asked:
            for mine, theirs in zip(answer, shadow.predict(rows), strict=True):
                assert mine.fixed == theirs.fixed
                assert {a: s.tolist() for a, s in mine.survival.items()} == {
                    a: s.tolist() for a, s in theirs.survival.items()
                }
        frames = [r.outcomes for r in told if r.WhichOneof("frame") == "outcomes"]
        outcomes = [entry for frame in frames for entry in frame.outcomes]
        seen = {row.sequence_id for rows, _ in asked for row in rows}
        assert outcomes
        assert {entry.row.sequence_id for entry in outcomes} <= seen
        assert {entry.policy_version for entry in outcomes} == {policy.version}
        assert {entry.propensity for entry in outcomes} == {1.0}
        policy.shut()
    world.loaded.target.drop_taps(dflash.weight_hash)


class EngineProbe:
    """Counts rows that a step leaves asleep."""

    def __init__(self, core: EngineCore) -> None:
        self.num_resting = 0
        awake = core._router.awake

        def noted(looks: Any, *, is_prefilling: bool) -> set[int]:
            found = awake(looks, is_prefilling=is_prefilling)
            self.num_resting += len(set(looks) - found)
            return found

        core._router.awake = noted  # type: ignore[method-assign]


def test_changing_to_a_policy_that_no_router_can_run_is_refused(world: World) -> None:
    with (
        ThreadHost(lambda: RouterServer("static", world.model)) as host,
        pytest.raises(ConfigError, match="run it in the verifier"),
    ):
        host.server.change_policy("bandit")
