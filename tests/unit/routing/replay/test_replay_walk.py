"""Policies led along logged texts: what is counted, what is censored, what it is compared with."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from whiflash.core.errors import ConfigError
from whiflash.routing.policies.registry import POLICIES
from whiflash.routing.replay.evaluate import evaluate, result
from whiflash.routing.replay.log import logged_runs
from whiflash.routing.replay.tau import TauSearch, best

HEAD = {
    "kind": "run", "run": "r1", "target": "f", "verify_ms": {"1": 10.0, "16": 12.0},
    "free": {"retrieval": True, "eagle3": False, "dflash": False},
}  # fmt: skip
DRAFT_MS = {"retrieval": 0.1, "eagle3": 4.0, "dflash": 3.0}


def round_of(position, outcomes, sequence=1, emitted=1, entropy=0.5, ended=False, matched=8):
    """outcomes: by arm, (nodes, accepted); accepted None where it was never settled."""
    proposed = {arm: nodes for arm, (nodes, _) in outcomes.items()}
    yield {
        "kind": "round", "step": 1000 * sequence + position, "sequence": sequence,
        "position": position, "arm": "none", "entropy": entropy, "margin": 0.5,
        "recent": [entropy], "matched": matched, "max_nodes": 8, "drafted": 0,
        "proposed": proposed, "survival": {a: [0.9] * n for a, n in proposed.items() if n},
        "emitted": emitted, "ended": ended, "rows": 1, "batch": 1, "verify_ms": 10.0,
        "draft_ms": {arm: DRAFT_MS[arm] for arm in proposed},
        "catch_up": {arm: {"tokens": 1, "ms": 0.2} for arm in proposed if arm != "retrieval"},
        "total_ms": 11.0 + sum(DRAFT_MS[arm] + 0.2 for arm in proposed),
    }  # fmt: skip
    for arm, (nodes, accepted) in outcomes.items():
        if accepted is not None and nodes:
            yield {"kind": "settled", "sequence": sequence, "position": position, "arm": arm,
                   "nodes": nodes, "accepted": accepted,
                   "ranks": {str(d): d - 1 for d in range(1, accepted + 1)}}  # fmt: skip


def survey(length=40, seed=0, sequence=1):
    """Every position is a root; eagle3 is good above an entropy of 1, dflash below it."""
    random = np.random.default_rng(seed)
    for position in range(5, 5 + length):
        is_high = random.random() < 0.5
        good, bad = int(random.integers(4, 7)), int(random.integers(0, 2))
        yield from round_of(
            position,
            {
                "retrieval": (4, int(random.integers(0, 3))),
                "eagle3": (6, good if is_high else bad),
                "dflash": (6, bad if is_high else good),
            },
            sequence,
            entropy=2.0 + random.random() if is_high else 0.5 * random.random(),
            ended=position == 4 + length,
        )


def walks(records, *policies):
    found = evaluate(logged_runs([HEAD, *records]), policies)
    return {walk.policy: walk for walk in found}


def test_costs_are_those_of_the_log():
    (run,) = logged_runs([HEAD, *survey(300)])
    assert run.costs.verify_ms(1) == pytest.approx(10.0, rel=0.01)
    assert run.costs.round_ms("none", 0, 0) == pytest.approx(11.0, rel=0.02)
    assert run.costs.draft_ms("eagle3", 1) == pytest.approx(4.2, rel=0.02)
    run.costs.check_integrity()


def test_plain_decoding_emits_the_text_a_token_a_round():
    walk = walks(survey(), "static:arm=none")["static:arm=none"]
    assert (walk.rounds, walk.emitted, walk.ending_rounds) == (40, 40, 1)
    assert walk.accepted_length == 1.0
    assert dict(walk.censored) == {}


@pytest.mark.parametrize(
    "policy",
    ["goodput", "static:arm=eagle3", "entropy:tau=1.0", "entropy:tau=1.0,trim=yes",
     "bandit:reward=efficiency", "rules", "rules:rule=respec", "rules:rule=trtllm,trim=yes"],
)  # fmt: skip
def test_on_a_whole_survey_nothing_is_censored_and_nobody_beats_the_oracle(policy):
    records = [r for n in range(3) for r in survey(60, n, n)]
    found = walks(records, policy)
    walk, oracle = found[policy], found["oracle"]
    assert not walk.censored
    assert walk.emitted == oracle.emitted == 180
    assert walk.goodput <= oracle.goodput * (1 + 1e-9)
    assert sum(walk.arm_rounds.values()) == walk.rounds
    assert result(oracle, oracle)["regret"] == 0.0
    assert 0.0 <= result(walk, oracle)["regret"] < 1.0


def test_the_entropy_rule_goes_where_the_world_was_made_for_it():
    found = walks(survey(400), "entropy:tau=1.0", "static:arm=eagle3", "static:arm=dflash")
    rule = found["entropy:tau=1.0"]
    assert rule.goodput > 1.2 * found["static:arm=eagle3"].goodput
    assert rule.goodput > 1.2 * found["static:arm=dflash"].goodput
    assert rule.switches > 10
    assert rule.accepted_length == pytest.approx(6.0, abs=0.3)


def test_an_arm_that_was_not_proposed_is_censored_and_the_log_followed_on():
    """Three rounds of an ordinary run: its own arm alone is known."""
    records = [
        *round_of(5, {"retrieval": (4, 2)}, emitted=3),
        *round_of(8, {"retrieval": (4, 2), "eagle3": (6, 5)}, emitted=3),
        *round_of(11, {"retrieval": (0, 0)}, emitted=1, ended=True),
    ]
    walk = walks(records, "static:arm=eagle3")["static:arm=eagle3"]
    # 8 takes five and ends the text at 12; 5 was censored, its three tokens passed over.
    assert dict(walk.censored) == {"arm": 1}
    assert (walk.skipped, walk.rounds, walk.emitted) == (3, 1, 4)


def test_a_round_that_ends_where_none_began_goes_on_at_the_next_root():
    records = [
        *round_of(5, {"eagle3": (6, 1)}, emitted=3),
        *round_of(8, {"eagle3": (6, 2)}, emitted=3, ended=True),
    ]
    walk = walks(records, "static:arm=eagle3")["static:arm=eagle3"]
    assert dict(walk.censored) == {"root": 1}
    assert (walk.skipped, walk.rounds, walk.emitted) == (1, 2, 5)


def test_what_was_proposed_in_spare_time_is_known_as_well():
    """Its line may stand before or behind the line that settles it."""
    record = {"kind": "shadow", "sequence": 1, "position": 5, "propensity": 0.03, "regret": None,
              "proposed": {"eagle3": 6}, "survival": {"eagle3": [0.9] * 6}}  # fmt: skip
    settled = {"kind": "settled", "sequence": 1, "position": 5, "arm": "eagle3", "nodes": 6,
               "accepted": 2, "ranks": {"1": 0, "2": 1}}  # fmt: skip
    strange = record | {"sequence": 7}
    rounds = list(round_of(5, {"retrieval": (4, 2)}, emitted=3, ended=True))
    for behind in ([record, settled], [settled, strange, record]):
        walk = walks([*rounds, *behind], "static:arm=eagle3")["static:arm=eagle3"]
        assert not walk.censored
        assert (walk.rounds, walk.emitted) == (1, 3)


def test_unsettled_proposals_are_censored():
    records = list(round_of(5, {"eagle3": (6, None)}, emitted=2, ended=True))
    walk = walks(records, "static:arm=eagle3")["static:arm=eagle3"]
    assert dict(walk.censored) == {"arm": 1}
    assert walk.rounds == 0


def test_where_nobody_may_draft_every_policy_decodes_plainly():
    (last,) = round_of(6, {}, ended=True)
    last |= {"entropy": None, "margin": None, "recent": [], "max_nodes": 0}
    records = [*round_of(5, {"eagle3": (6, 0)}), last]
    for walk in walks(records, "static:arm=eagle3").values():
        assert (walk.rounds, walk.emitted, dict(walk.censored)) == (2, 2, {})
    assert logged_runs([HEAD, last]) == []


def test_runs_of_one_log_are_told_apart_and_heads_repeat():
    other = {**HEAD, "run": "r2"}
    records = [HEAD, *survey(10), HEAD, *survey(10, sequence=2), other, *survey(10)]
    runs = logged_runs(records)
    assert [len(run.turns) for run in runs] == [2, 1]
    assert evaluate(runs, ["static:arm=none"])[0].emitted == 30


def test_logs_that_cannot_be_replayed_are_told():
    with pytest.raises(ConfigError, match="another version"):
        logged_runs([{"sequence": 1, "arm": "none"}])
    with pytest.raises(ConfigError, match="holds no round"):
        evaluate(logged_runs([HEAD]), ["goodput"])
    with pytest.raises(ConfigError, match="reward=efficiency"):
        walks(survey(), "bandit")
    with pytest.raises(ConfigError, match="add ddtree"):
        walks(survey(), "entropy:tau=1,below=ddtree")


def test_the_replay_teaches_its_costs_nothing():
    (run,) = logged_runs([HEAD, *survey(60)])
    before = copy.deepcopy(run.costs.describe())
    evaluate([run], ["goodput", "bandit:reward=efficiency,trim=yes"])
    assert run.costs.describe() == before
    assert set(POLICIES) >= {"goodput", "bandit"}


def test_tau_is_found_between_the_two_kinds_of_text():
    runs = logged_runs([HEAD, *(r for n in range(4) for r in survey(100, n, n))])
    search = TauSearch(runs, "eagle3", "dflash")
    scores = search.scores()
    assert 0.5 <= best(scores).tau <= 2.0
    assert best(scores).tokens_per_s > 1.2 * max(scores[0].tokens_per_s, scores[-1].tokens_per_s)
    assert (scores[0].share_above, scores[-1].share_above) == (1.0, 0.0)
    assert len(scores) <= 66
    assert search.num_censored == 0


def test_taus_goodput_is_the_walks():
    """Two implementations, one number; retrieval's aside cost is the walk's alone."""
    records = [r for r in survey(120) if r.get("arm") != "retrieval"]
    for record in records:
        if record["kind"] == "round":
            record["proposed"].pop("retrieval")
    head = {**HEAD, "free": {"eagle3": False, "dflash": False}}
    runs = logged_runs([head, *records])
    search = TauSearch(runs, "eagle3", "dflash")
    (walk, _) = evaluate(runs, ["entropy:tau=1.0"])
    assert search.score(1.0).tokens_per_s == pytest.approx(walk.goodput, rel=1e-9)


def test_a_log_without_both_arms_has_no_tau():
    runs = logged_runs([HEAD, *round_of(5, {"eagle3": (6, 1)}, ended=True)])
    with pytest.raises(ConfigError, match="both eagle3 and dflash"):
        TauSearch(runs, "eagle3", "dflash")
