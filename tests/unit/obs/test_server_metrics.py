from __future__ import annotations

import time
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from whiflash.core.usage import ArmUsage, Usage
from whiflash.obs.engine_metrics import EngineCollector, EngineState
from whiflash.obs.metrics import ServerMetrics

Rounds = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=30)


def usage_of(rounds: list[tuple[int, int, bool]]) -> ArmUsage:
    """As the engine counts them: (drafted depth, accepted, whether the round ended the turn)."""
    usage = ArmUsage()
    for depth, accepted, is_end in rounds:
        accepted = min(depth, accepted)
        usage.drafted += depth
        if is_end:
            usage.ending_rounds += 1
            usage.ending_emitted += accepted + 1
            continue
        usage.rounds += 1
        usage.emitted += accepted + 1
        usage.accepted += accepted
        for counts, reach in ((usage.drafted_at, depth), (usage.accepted_at, accepted)):
            counts.extend([0] * (reach - len(counts)))
            for position in range(reach):
                counts[position] += 1
    return usage


def samples(metrics: ServerMetrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found[sample.name][tuple(sorted(sample.labels.items()))] = sample.value
    return found


@given(st.lists(st.tuples(st.sampled_from(["retrieval", "eagle3", "none"]), Rounds), max_size=8))
def test_accepted_length_is_one_plus_the_acceptance_of_all_positions(
    turns: list[tuple[str, list[tuple[int, int, bool]]]],
) -> None:
    """The identity of design.md 2, on what is exported, to the last token."""
    metrics = ServerMetrics()
    for arm, rounds in turns:
        metrics.turn_ended("stop", Usage(arms={arm: usage_of(rounds)}))
    found = samples(metrics)
    for labels, rounds_total in found["whiflash_rounds_total"].items():
        arm = dict(labels)["arm"]
        accepted = sum(
            value for key, value in found["whiflash_accepted_at_total"].items()
            if dict(key)["arm"] == arm
        )  # fmt: skip
        assert found["whiflash_round_tokens_total"][labels] == rounds_total + accepted
        assert found["whiflash_accepted_tokens_total"][labels] == accepted


def test_turns_calls_and_times_are_added_up() -> None:
    metrics = ServerMetrics()
    metrics.in_flight.inc()
    metrics.handed_over(0.2)
    metrics.first_token(0.3)
    metrics.turn_ended("stop", Usage(10, 4, 5, decode_ms=80.0))
    metrics.turn_ended("length", Usage(10, 0, 1, decode_ms=0.0))
    metrics.prediction(3, 2)
    metrics.in_flight.dec()
    metrics.call_ended("ok", 1.5)
    found = samples(metrics)
    assert found["whiflash_turns_total"] == {(("reason", "stop"),): 1, (("reason", "length"),): 1}
    assert found["whiflash_tokens_total"][(("kind", "prompt"),)] == 20
    assert found["whiflash_tokens_total"][(("kind", "cached"),)] == 4
    assert found["whiflash_tokens_total"][(("kind", "completion"),)] == 6
    assert found["whiflash_time_per_token_seconds_sum"][()] == pytest.approx(0.02)
    assert found["whiflash_time_per_token_seconds_count"][()] == 1
    assert found["whiflash_time_to_first_token_seconds_sum"][()] == pytest.approx(0.3)
    assert found["whiflash_queue_seconds_sum"][()] == pytest.approx(0.2)
    assert found["whiflash_request_seconds_count"][()] == 1
    assert found["whiflash_requests_total"] == {(("outcome", "ok"),): 1}
    assert found["whiflash_requests_in_flight"][()] == 0
    assert found["whiflash_prediction_tokens_total"][(("outcome", "rejected"),)] == 2


def test_the_engine_is_read_at_each_scrape() -> None:
    metrics, reads = ServerMetrics(), []

    def read() -> EngineState:
        reads.append(1)
        price = {"4": {"tokens_per_s": 50.0, "goodput_over_plain": 1.2}}
        plan = {"counters": {"steps": 3 * len(reads)}, "routing": {"price": price}}
        return EngineState({"kv_bytes": 7.0}, plan)

    metrics.registry.register(EngineCollector(read))
    assert not reads
    samples(metrics)
    found = samples(metrics)
    assert len(reads) == 2
    assert found["whiflash_kv_bytes"][()] == 7
    assert found["whiflash_engine_steps_total"][()] == 6
    assert found["whiflash_price_tokens_per_second"][(("batch", "4"),)] == 50
    assert found["whiflash_goodput_over_plain"][(("batch", "4"),)] == 1.2


def test_two_servers_of_one_process_count_apart() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.call_ended("ok", 1.0)
    assert samples(second)["whiflash_requests_total"] == {}


@pytest.mark.serial
def test_a_finished_turn_costs_less_than_a_millisecond() -> None:
    """A turn has tens of rounds of tens of milliseconds: far below a hundredth of them."""
    metrics = ServerMetrics()
    usage = Usage(10, 0, 50, arms={a: usage_of([(16, 8, False)] * 20) for a in ("a", "b", "none")})
    metrics.turn_ended("stop", usage)
    best = min(_seconds(metrics, usage) for _ in range(20))
    assert best < 1e-3


def _seconds(metrics: ServerMetrics, usage: Usage) -> float:
    began = time.perf_counter()
    metrics.turn_ended("stop", usage)
    return time.perf_counter() - began
