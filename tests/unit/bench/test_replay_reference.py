"""Earlier measurements stand beside ours only where they are of the same runs."""

from __future__ import annotations

from typing import Any

from whiflash.bench.replay_reference import REFERENCES, reference_rows

NAME = "tau-bench airline, 4 trials a task"


def source(name: str, runs: int) -> dict[str, Any]:
    figures = {"local": 2.0, "shared": 3.0, "both": 4.0}
    return {"set": name, "runs": runs} | {
        f"{key}_tokens_per_round": value for key, value in figures.items()
    }


def test_a_whole_set_has_every_row_beside_it() -> None:
    silos = [{"set": NAME, "1": 4.0, "2": 3.0, "4": 2.8, "8": 2.6, "16": 2.4, "no store": 2.0}]
    delays = [{"set": NAME, "0": 4.0, "4": 4.0, "16": 3.9, "32": 3.0}]
    rows = reference_rows([source(NAME, 200)], silos, delays)
    assert [row["what"] for row in rows[:3]] == ["local", "shared", "both"]
    assert len(rows) == 3 + 6 + 4
    (late,) = (row for row in rows if row["what"] == "seen 32 runs later")
    assert (late["ours_kept"], late["earlier"]) == (0.75, 3.95)
    assert late["earlier_kept"] == 3.95 / 3.97
    (two,) = (row for row in rows if row["what"] == "silos: 2")
    assert two["ours"] == 3.0


def test_another_set_and_a_part_of_one_have_none() -> None:
    assert (
        reference_rows([source(NAME, 4), source("mine", 200)], [{"set": NAME, "1": 4.0}], []) == []
    )


def test_every_reference_has_its_best_row() -> None:
    for reference in REFERENCES.values():
        assert reference.sources["both"] == max(reference.sources.values())
        for rows, best in ((reference.silos, "1"), (reference.delays, "0")):
            assert not rows or rows[best] == max(rows.values())
