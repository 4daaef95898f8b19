"""The router as the engine calls it, and what it earns in a world of known costs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.rows import NONE, Choice, Outcome, StepCost
from whiflash.routing.costs import CostModel
from whiflash.routing.policies.registry import make_policy
from whiflash.routing.policies.static import StaticPolicy
from whiflash.routing.router import Router

CURVE = CostCurve(((1, 20.0), (64, 26.0)))


def router_of(policy: str = "goodput", **options) -> Router:
    costs = CostModel(CURVE)
    share = options.pop("plain_share", 0.0)
    return Router(make_policy(policy, costs, **options), costs, plain_share=share)


def chain(length: int = 4, odds: float = 0.9) -> DraftTree:
    return DraftTree.chain([1] * length, odds ** np.arange(1, length + 1))


def test_a_step_from_choice_to_outcome(row):
    router = router_of()
    rows = [row(0, {"a": chain()}), row(1, {"a": DraftTree.empty()}), row(2)]
    choices = router.choose(rows, base_tokens=5)
    assert [c.arm for c in choices] == ["a", NONE, NONE]
    trees = router.trim([chain(), DraftTree.empty(), DraftTree.empty()], choices, 5)
    assert [len(t) for t in trees] == [choices[0].budget, 0, 0]
    outcomes = [
        Outcome(r, c, len(t), len(t), len(t) + 1, False)
        for r, c, t in zip(rows, choices, trees, strict=True)
    ]
    emitted = sum(o.emitted for o in outcomes)
    router.observe(outcomes, StepCost(12, 21.0, {"a": 0.1}, 22.0, emitted, False, False))
    router.forget(0)
    router.check_integrity()
    told = json.loads(json.dumps(router.snapshot()))
    assert told["rounds"] == {"a": 1, NONE: 2}
    assert told["emitted"] == {"a": len(trees[0]) + 1, NONE: 2}
    assert sum(told["shares"].values()) == pytest.approx(1.0)


def test_a_row_may_leave_between_choice_and_trim(row):
    router = router_of()
    choices = router.choose([row(i, {"a": chain()}) for i in range(3)], 0)
    assert [len(t) for t in router.trim([chain(), chain()], choices[1:], 0)] == [
        choice.budget for choice in choices[1:]
    ]


def test_rows_without_room_draft_nothing(row):
    assert router_of("static").choose([row(0, {"a": chain()}, max_nodes=0)], 0) == [Choice(NONE, 0)]


def test_forced_steps_are_wholly_plain_and_never_beside_prefill(row):
    router = router_of("static", plain_share=0.5)
    rows = [row(i, {"a": chain()}) for i in range(4)]
    forced = 0
    looks: dict[int, bool | None] = dict.fromkeys(range(4), True)
    for _ in range(200):
        assert router.awake(looks, is_prefilling=True) == {0, 1, 2, 3}
        awake = router.awake(looks, is_prefilling=False)
        assert len(awake) in (0, 4)
        forced += not awake
        outcomes = [Outcome(r, Choice("a", 4), 4, 0, 1, False) for r in rows if awake]
        nodes = 4 * len(outcomes)
        step = StepCost(
            4 + nodes, 20.0, {}, 21.0, 4, nodes == 0, True, num_looked=len(outcomes), look_ms=0.1
        )
        router.observe(outcomes, step)
    assert 60 < forced < 140
    assert router.snapshot()["forced_plain_steps"] == forced


def test_decode_rows_without_a_choice_count_in_the_price(row):
    """A row at its last token emits too; the forward's size tells."""
    router = router_of(plain_share=0.01)
    outcome = Outcome(row(0, {"a": chain()}), Choice("a", 4), 4, 2, 3, False)
    for _ in range(300):
        router.observe([outcome], StepCost(4 + 4, 20.0, {}, 20.0, 6, False, True))
    assert router.price.at(4) == pytest.approx(6 / 20.0, rel=0.05)


def test_arms_that_requests_pin_do_not_turn_routed_drafting_off(row):
    """A pinned arm that loses is its caller's wish; it is no verdict on what the router takes."""
    router = router_of(plain_share=0.0)
    pinned = Outcome(row(0, {"a": chain()}), Choice("a", 4), 4, 0, 1, False)
    for _ in range(300):
        losing = StepCost(5, 20.0, {"a": 60.0}, 80.0, 1, False, True, was_pinned=True)
        router.observe([pinned], losing)
    assert router.choose([row(1, {"b": chain()})], 0)[0].arm == "b"
    assert router.price.load(1).drafted.num_added == 0


class Untouchable(StaticPolicy):
    """Fails where a step without any offer still asks or teaches the policy."""

    def predict(self, rows):
        raise AssertionError("asked")

    def observe(self, outcomes):
        raise AssertionError("taught")


def test_a_batch_with_nothing_to_draft_does_no_work(row):
    """TRT-LLM PR #18837: a step without drafts can still pay for speculation."""
    costs = CostModel(CURVE)
    router = Router(Untouchable(costs), costs)
    rows = [row(i, {"a": DraftTree.empty()}) for i in range(32)]
    choices = router.choose(rows, 0)
    assert choices == [Choice(NONE, 0)] * 32
    assert [len(t) for t in router.trim([DraftTree.empty()] * 32, choices, 0)] == [0] * 32
    outcomes = [Outcome(r, c, 0, 0, 1, False) for r, c in zip(rows, choices, strict=True)]
    router.observe(outcomes, StepCost(32, 23.0, {"a": 0.1}, 24.0, 32, True, True))
    assert router.price.load(32).plain_slowdown.num_added == 1


# --- earnings: facts/faults.md rows 38, 39 and 41 ---


@pytest.mark.parametrize(("num_rows", "steps"), [(1, 600), (8, 300), (32, 150)])
@pytest.mark.parametrize("kind", ["copy", "code", "prose", "hostile"])
def test_goodput_is_near_the_best_static_arm_and_never_below_none(
    world, text, kind, num_rows, steps
):
    """sglang #6949, vllm #8439, llama.cpp #23052: slower than no speculation under load or on
    creative text."""
    texts = [text[kind]] * num_rows
    none = world(texts, "static", arm=NONE, plain_share=0.0).run(40).goodput
    statics = [
        world(texts, "static", arm="retrieval", budget=b, plain_share=0.0).run(steps // 5).goodput
        for b in (1, 4, 16)
    ]
    learned = world(texts).run(steps).goodput
    assert learned >= 0.98 * none
    assert learned >= 0.95 * max(none, *statics)


def test_mixed_texts_in_one_batch_beat_every_static_arm(world, text):
    texts = [text["copy"], text["prose"], text["code"], text["prose"]] * 2
    statics = [
        world(texts, "static", arm="retrieval", budget=b, plain_share=0.0).run(200).goodput
        for b in (1, 2, 4, 8, 16)
    ]
    assert world(texts).run(400).goodput > 1.1 * max(statics)


@pytest.mark.parametrize("loads", [(8, 9), (31, 33), (1, 16)])
def test_oscillating_load_never_loses(world, text, loads):
    """vllm #49548: throughput collapsed where the batch size crossed a table's boundary."""
    texts = [text["code"], text["prose"], text["copy"]] * 11
    plain = world(texts, "static", arm=NONE, plain_share=0.0)
    routed = world(texts)
    for step in range(300):
        plain.step(loads[step % 2])
        routed.step(loads[step % 2])
    assert routed.goodput >= 0.98 * plain.goodput
    assert routed.router.snapshot()["forced_plain_steps"] <= 0.02 * 300


def test_drafting_comes_back_when_text_or_machine_change(world, text):
    """TensorRT-LLM PR #12905 turned speculation off for good."""
    scene = world([text["hostile"]] * 4).run(800)
    assert np.mean([arm != NONE for arm in scene.arms[0][400:]]) < 0.2
    scene.texts = [text["copy"]] * 4
    scene.arms.clear()
    scene.slowdown = 1.5
    scene.run(900)
    assert np.mean([arm != NONE for arm in scene.arms[0][-300:]]) > 0.8


def test_the_price_in_the_world_is_its_goodput(world, text):
    scene = world([text["copy"]], noise=0.0).run(600)
    snapshot = scene.router.snapshot()["price"]["1"]
    assert snapshot["tokens_per_s"] == pytest.approx(scene.goodput, rel=0.15)
    assert snapshot["plain_tokens_per_s"] == pytest.approx(1e3 / 30.02, rel=0.03)
