"""The router in another process: versions, sources of decisions, learning from all verifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from whiflash.core.errors import ConfigError
from whiflash.core.params import GenerationRequest
from whiflash.core.rows import NONE, Choice, Outcome, Prediction, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.rpc.loop import RpcLoop
from whiflash.rpc.policy_state import load_policy
from whiflash.rpc.remote_policy import DOWN, LATE, REMOTE, RemotePolicy
from whiflash.rpc.router_server import RouterServer
from whiflash.testing.engines import run, small_core
from whiflash.testing.hosts import ThreadHost
from whiflash.testing.waiting import wait_for

World = Any
Ask = Callable[..., list[GenerationRequest]]


class Recorder:
    """The router's policy from outside: every answer, with the version that gave it."""

    def __init__(self, policy: RemotePolicy) -> None:
        self._policy = policy
        self.name, self.needs, self.drafts_all = policy.name, policy.needs, policy.drafts_all
        self.observe = policy.observe
        self.asked: list[tuple[int, list[RouteRow], list[Prediction]]] = []

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        before = self._policy.decisions[REMOTE]
        answer = self._policy.predict(rows)
        if self._policy.decisions[REMOTE] > before:
            version = self._policy._chosen_by[rows[0].sequence_id]
            self.asked.append((version, list(rows), answer))
        return answer


def same(mine: Prediction, theirs: Prediction) -> bool:
    odds = {arm: values.tolist() for arm, values in mine.survival.items()}
    return mine.fixed == theirs.fixed and odds == {
        arm: values.tolist() for arm, values in theirs.survival.items()
    }


def test_remote_decisions_equal_local_ones_of_the_same_version(
    world: World, loop: RpcLoop, ask: Ask
) -> None:
    """With a deadline of 50 ms at least 95 % are remote, over several versions."""
    states: dict[int, bytes] = {}
    curve = world.loaded.target.verify_curve
    make = lambda: RouterServer("goodput", world.model, publish_outcomes=64)  # noqa: E731
    with ThreadHost(make) as host:
        policy = RemotePolicy("goodput", loop, host.address, curve, world.model, deadline_s=0.05)
        wait_for(lambda: policy.link.is_up and policy.link.state is not None, 10.0)
        versions = host.server.servicer.versions
        states[versions.number] = versions.data
        publish = versions.publish

        def note() -> None:
            publish()
            states[versions.number] = versions.data

        versions.publish = note
        recorder = Recorder(policy)
        drafters = {name: world.make(name) for name in ("eagle3", "dflash")}
        plain = run(small_core(world.loaded), *ask(8))
        done = run(small_core(world.loaded, drafters, recorder), *ask(8))
        assert [c[0].token_ids for c in done] == [c[0].token_ids for c in plain]
        total = sum(policy.decisions.values())
        assert policy.decisions[REMOTE] >= 0.95 * total, policy.decisions
        assert len(states) > 2, "no version was published"
        shadows = {number: load_policy(data, CostModel(curve)) for number, data in states.items()}
        if policy.decisions[REMOTE] == total:
            for version, rows, answer in recorder.asked:
                expected = shadows[version].predict(rows)
                assert all(map(same, answer, expected))
        policy.shut()
        wait_for(lambda: host.server.servicer.sessions.num_streams == 0, 10.0)


def test_a_router_that_dies_leaves_the_snapshot_and_comes_back(
    world: World, loop: RpcLoop, ask: Ask
) -> None:
    curve = world.loaded.target.verify_curve
    make = lambda: RouterServer("static:arm=dflash", world.model)  # noqa: E731
    plain = run(small_core(world.loaded), *ask(3))
    with ThreadHost(make) as host:
        policy = RemotePolicy(
            "static:arm=dflash", loop, host.address, curve, world.model, deadline_s=0.05
        )
        wait_for(lambda: policy.link.is_up, 10.0)
        core = small_core(world.loaded, {"dflash": world.make("dflash")}, policy)
        assert run(core, *ask(3))[0][0].usage.arms["dflash"].drafted > 0
    wait_for(lambda: not policy.link.is_up, 10.0)
    done = run(core, *ask(3))
    assert [c[0].token_ids for c in done] == [c[0].token_ids for c in plain]
    assert done[0][0].usage.arms["dflash"].drafted > 0
    assert policy.decisions[DOWN] > 0
    policy.shut()


def test_a_deadline_that_nobody_can_meet_costs_nothing_but_the_answer(
    world: World, loop: RpcLoop, ask: Ask
) -> None:
    curve = world.loaded.target.verify_curve
    with ThreadHost(lambda: RouterServer("static", world.model)) as host:
        policy = RemotePolicy("static", loop, host.address, curve, world.model, deadline_s=0.0)
        wait_for(lambda: policy.link.is_up, 10.0)
        core = small_core(world.loaded, {"dflash": world.make("dflash")}, policy)
        done = run(core, *ask(2))
        assert policy.decisions[LATE] > 0
        assert done[0][0].usage.arms["dflash"].drafted > 0
        policy.shut()


def test_another_policy_or_target_is_refused_in_words(world: World, loop: RpcLoop) -> None:
    curve = world.loaded.target.verify_curve
    with ThreadHost(lambda: RouterServer("static", world.model)) as host:
        other = RemotePolicy("goodput", loop, host.address, curve, world.model)
        wait_for(lambda: "the router 'static'" in other.link.problem, 10.0)
        assert "policy 'goodput'" in other.link.problem
        strange = RemotePolicy("static", loop, host.address, curve, "another target")
        wait_for(lambda: "target another target there" in strange.link.problem, 10.0)
        other.shut()
        strange.shut()


def test_a_policy_of_its_own_last_choice_stays_in_the_verifier(world: World) -> None:
    with pytest.raises(ConfigError, match="run it in the verifier"):
        RouterServer("bandit", world.model)


def test_a_state_makes_nothing_but_policies() -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("never",)

    with pytest.raises(ValueError, match="no state of a policy"):
        load_policy(pickle.dumps(print), CostModel.__new__(CostModel))
    with pytest.raises(ValueError, match="may not be part"):
        load_policy(pickle.dumps(eval), CostModel.__new__(CostModel))


def test_the_learner_knows_shadows_by_their_propensity(world: World, loop: RpcLoop) -> None:
    """It learns of the arm; its row is no offer that was passed over."""
    curve = world.loaded.target.verify_curve
    make = lambda: RouterServer("goodput", world.model, publish_outcomes=10**9)  # noqa: E731
    with ThreadHost(make) as host:
        policy = RemotePolicy("goodput", loop, host.address, curve, world.model, deadline_s=0.05)
        wait_for(lambda: policy.link.is_up and policy.link.state is not None, 10.0)
        row = RouteRow(1, "n", Signals(0.3, 0.5), (NONE, "dflash"), {}, 0, 8)
        policy.observe_shadows([Outcome(row, Choice("dflash", 4), 4, 0, 1, False, 0.25)])
        versions = host.server.servicer.versions
        wait_for(lambda: versions.num_outcomes == 1, 10.0)
        assert versions._learner._table.num_namespaces == 1
        assert versions._learner._explorer._passed == {}
        policy.shut()
