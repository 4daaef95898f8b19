"""Goals of the suite `routing` are judged by pairs of runs, and say by how much they are missed."""

from __future__ import annotations

from typing import Any

import pytest

from whiflash.bench.routing_goals import goals_table
from whiflash.bench.routing_live import against_best
from whiflash.bench.routing_mix import mix_highlights, mix_table
from whiflash.bench.routing_pairs import best_static_of_all, by_category, mixed
from whiflash.bench.timing import paired_ratio

NONE_PACES = [10.0, 20.0, 10.0, 20.0, 10.0]
GAPS = {"live": 0.5, "recorded": None}


def rows_of(category: str, **speeds: list[float] | float) -> list[dict[str, Any]]:
    """One text: rows that are so many times as fast as `none`, pair by pair."""
    made = []
    for name, speed in {"none": 1.0, **speeds}.items():
        factors = speed if isinstance(speed, list) else [speed] * len(NONE_PACES)
        paces = [pace / factor for pace, factor in zip(NONE_PACES, factors, strict=True)]
        ratio = paired_ratio(NONE_PACES, paces)
        made.append({
            "category": category, "batch": 1, "row": name, "is_static": name != "goodput",
            "paces": paces, "ratio": ratio.median, "lower": ratio.lower, "same": True,
            "routing": 0.004, "catch_up": 0.05, "store": category,
        })  # fmt: skip
    return made


def goals_of(
    live: list[dict[str, Any]], forced: list[dict[str, Any]], has_amx: bool = False
) -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for row in goals_table(live, forced, GAPS, has_amx).rows:
        found[row["goal"].split(",")[0], row["where"].split(",")[0].split(" (")[0]] = row
    return found


LIVE = [*rows_of("a", retrieval=4.0, goodput=4.0), *rows_of("b", retrieval=0.25, goodput=0.9)]


def test_the_mix_is_a_geometric_mean_pair_by_pair() -> None:
    assert {row["row"]: round(row["mix"], 3) for row in mix_table(LIVE).rows} == {
        "none": 1.0, "retrieval": 1.0, "goodput": 1.897,
    }  # fmt: skip
    texts = list(by_category(LIVE).values())
    assert mixed(texts, "goodput", "none").lower == pytest.approx(1.897, abs=1e-3)
    (highlight,) = mix_highlights(LIVE)
    assert highlight.figure == "1.90x, least 0.90x (b)"


def test_the_best_static_arm_is_met_pair_by_pair_not_by_medians() -> None:
    """Medians of goodput and retrieval are alike, but in its pairs goodput loses twice."""
    rows = rows_of("a", retrieval=[1.0, 3.0, 2.0, 2.0, 2.0], goodput=[3.0, 1.0, 2.0, 2.0, 2.0])
    (goodput,) = (row for row in against_best(rows) if row["row"] == "goodput")
    assert goodput["to_best"] == pytest.approx(1.0)
    assert goodput["to_best_lower"] == pytest.approx(1 / 3)
    goal = goals_of(rows, [])["goodput : best static arm", "live"]
    assert goal["found"] == pytest.approx(1.0)
    assert not goal["met"]
    assert goal["verdict"] == "**missed** by 0.65"
    assert goal["where"].endswith("least: a (retrieval)")


def test_every_goal_of_the_issue_is_there_with_its_verdict() -> None:
    forced = [*rows_of("cold", retrieval=1.5, goodput=1.5),
              *rows_of("repeated task", retrieval=3.5, goodput=3.2)]  # fmt: skip
    goals = goals_table(LIVE, forced, GAPS, has_amx=True).rows
    assert [(row["goal"].split(",")[0], row["wanted"], row["met"]) for row in goals] == [
        ("goodput : best static arm", 0.98, False),
        ("goodput : best static arm of all texts", 1.15, True),
        ("goodput : none", 0.98, False),
        ("goodput : none", 1.8, True),
        ("goodput : best static arm", 0.98, False),
        ("goodput : best static arm of all texts", 1.15, False),
        ("goodput : none", 0.98, True),
        ("goodput : none", 3.0, True),
        ("goodput : none", 1.8, False),
        ("gap from the best static arm of each text to clairvoyant", 0.6, False),
        ("routing", 0.01, True),
        ("switching with catch-up", 0.03, False),
    ]
    verdicts = [row["verdict"] for row in goals]
    assert verdicts[2] == "**missed** by 0.08"
    assert verdicts[8] == "**missed** by 0.30"
    assert verdicts[9] == "**missed** by 10.0%"
    assert verdicts[11] == "**missed** by 2.0%"


def test_goals_for_amx_alone_are_measured_without_it_and_not_judged() -> None:
    forced = rows_of("repeated task", retrieval=3.5, goodput=2.9)
    goals = goals_table(LIVE, forced, GAPS, has_amx=False).rows
    (row,) = (row for row in goals if row["wanted"] == 3.0)
    assert row["met"] is None
    assert row["found"] == pytest.approx(2.9)
    assert row["verdict"] == "no AMX, so not a goal here (**missed** by 0.10)"
    assert any(row["wanted"] == 1.4 for row in goals)


def test_what_was_not_run_takes_no_part() -> None:
    here = {"category": "a", "batch": 1, "is_static": False}
    extra = [here | {"row": "llama.cpp"}, here | {"row": "clairvoyant (offline)", "ratio": 9.0}]
    assert mix_table([*LIVE, *extra]).rows == mix_table(LIVE).rows
    texts = list(by_category([*LIVE, *extra]).values())
    assert best_static_of_all(texts, "none") in ("none", "retrieval")
