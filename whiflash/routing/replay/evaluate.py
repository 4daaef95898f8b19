"""Several policies and the oracle on one log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE
from whiflash.routing.policies.oracle import clairvoyant
from whiflash.routing.policies.registry import ORACLE, policy_of
from whiflash.routing.replay.log import LoggedRun
from whiflash.routing.replay.walk import Walk, Walker
from whiflash.routing.setting import PolicySetting, check_setting


def evaluate(
    runs: Sequence[LoggedRun], policies: Sequence[str], has_hidden: bool = False
) -> list[Walk]:
    """A walk per policy, in order, the oracle's last. Policies are written as on the command line.
    has_hidden: roots hold hidden states, which no log does by itself. Raises ConfigError for an
    empty log, or a policy that it cannot serve."""
    if not runs:
        raise ConfigError("the round log holds no round of a sequence that may draft")
    walks = [_walk(runs, text, has_hidden) for text in policies if text != ORACLE]
    return [*walks, _oracle(runs)]


def put_costs(runs: Sequence[LoggedRun], measured: Sequence[LoggedRun]) -> None:
    """Gives `runs` the costs of another log, the last of its engines'. Raises ConfigError unless
    that had the same target and all arms of `runs`."""
    if not measured:
        raise ConfigError("the log of the costs holds no round of a sequence that may draft")
    last = measured[-1]
    for run in runs:
        missing = [arm for arm in run.free if arm not in last.free]
        if run.target != last.target or missing:
            what = f"has no arm {missing[0]}" if missing else "is of another target"
            raise ConfigError(f"the log of the costs {what}; record one with this target and "
                              f"--drafter for {', '.join(run.free)}")  # fmt: skip
        run.costs = last.costs


def _walk(runs: Sequence[LoggedRun], text: str, has_hidden: bool) -> Walk:
    walk = Walk(text)
    for run in runs:
        policy = policy_of(text, run.costs)
        check_setting(policy, _setting(run, has_hidden))
        walker = Walker(run, policy, walk)
        for turn in run.turns:
            walker.follow(turn)
    return walk


def _setting(run: LoggedRun, has_hidden: bool) -> PolicySetting:
    states = (root.signals.hidden for turn in run.turns for root in turn.roots.values())
    sizes = (len(state) for state in states if state is not None)
    return PolicySetting(
        tuple(run.free), next(sizes, 0), run.target, is_replay=True, has_hidden=has_hidden,
        shapes=run.shapes,
    )  # fmt: skip


def _oracle(runs: Sequence[LoggedRun]) -> Walk:
    walk = Walk(ORACLE)
    for run in runs:
        taps = [arm for arm, is_free in run.free.items() if not is_free]
        for turn in run.turns:
            path = clairvoyant(turn, run.costs, taps)
            before = None
            for step in path.rounds:
                is_end = step.position + step.emitted == turn.last
                walk.note(step.arm, step.emitted, 0.0, is_end)
                walk.switches += before not in (None, step.arm)
                before = step.arm
                if step.position not in turn.roots:
                    walk.censored["root"] += 1
            walk.total_ms += path.total_ms
    return walk


def result(walk: Walk, oracle: Walk) -> dict[str, Any]:
    """JSON-able: a row of the comparison. regret: share of the oracle's goodput that was missed."""
    shares = {arm: count / max(walk.rounds, 1) for arm, count in sorted(walk.arm_rounds.items())}
    regret = 1.0 - walk.goodput / oracle.goodput if oracle.goodput > 0.0 else 0.0
    return {
        "policy": walk.policy,
        "tokens_per_s": round(walk.goodput, 3),
        "accepted_length": round(walk.accepted_length, 4),
        "regret": round(regret, 4),
        "shares": {arm: round(share, 4) for arm, share in shares.items() if share or arm == NONE},
        "switches": walk.switches,
        "rounds": walk.rounds,
        "tokens": walk.emitted,
        "censored_arm": walk.censored["arm"],
        "censored_root": walk.censored["root"],
        "skipped_tokens": walk.skipped,
    }
