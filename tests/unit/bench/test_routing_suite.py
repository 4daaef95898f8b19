"""Suite `routing` on a toy target with trained shapes of its own: every row is there, every text is
the same, and offline figures are marked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whiflash.bench import routing_suite
from whiflash.bench.routing_cells import Cells
from whiflash.bench.routing_mix import goals_table, mix_table
from whiflash.bench.routing_prompts import CATEGORIES, routing_prompts
from whiflash.bench.suite import SuiteOptions, SuiteResult, run_suite
from whiflash.testing.toy import write_toy
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generations, GenerationSettings, plain_render
from whiflash.training.drafters.run import DFlashSettings, DrafterTraining, Eagle3Settings
from whiflash.training.drafters.trainer import StepSettings
from whiflash.training.features.extract import extract

ROWS = ["none", "retrieval", "eagle3 chain", "eagle3 tree", "dflash", "ddtree", "entropy"]
TEMPLATE = "{{ messages[-1]['content'][-60:] }}{% if tools and false %}<tool_call>{% endif %}"
EFFORT = routing_suite.Effort(1, 6, 1, 1, (2,), 1, 1, has_peers=False)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteOptions]:
    """A toy and hardly trained drafters for it."""
    from whiflash.engine.engine import Engine
    from whiflash.target.load import load_target

    root = tmp_path_factory.mktemp("routing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(root / "cache"))
        patch.setattr(routing_suite, "QUICK", EFFORT)
        toy = write_toy(root / "toy")
        (toy / "chat_template.jinja").write_text(TEMPLATE)  # a toy's context is short
        with Engine(model=str(toy), memory=2**26, drafters=("none",)) as engine:
            fingerprint = engine.core.target.info.fingerprint
            texts = Generations(root / "work", GenerationSettings(128, 1, 24), fingerprint)
            texts.run(engine, plain_render, TimeLimit(None), lambda _p, _a: None)
        extract(load_target(str(toy)), None, root / "work", TimeLimit(None), lambda _tokens: None)
        drafters = []
        for method in (Eagle3Settings(48, 3, 3), DFlashSettings(48, 1, 4, mask_id=0)):
            steps = StepSettings(2, 256, dtype="float32")
            training = DrafterTraining(
                root / "work", root / type(method).__name__, method, steps, "cpu"
            )
            training.run(TimeLimit(None), lambda _report: None)
            folder, table = training.export()
            drafters.append(f"{table['arm']}:{folder}")
        yield SuiteOptions(str(toy), is_quick=True, drafters=tuple(drafters))


@pytest.fixture(scope="module")
def result(options: SuiteOptions) -> SuiteResult:
    return routing_suite.run(options)


def _table(result: SuiteResult, name: str) -> list[dict[str, Any]]:
    return list(next(table for table in result.tables if table.name == name).rows)


def test_every_row_of_every_category_is_there_with_the_same_text(result: SuiteResult) -> None:
    live = _table(result, "live")
    for category in CATEGORIES:
        for batch in (1, 2):
            rows = [row for row in live if (row["category"], row["batch"]) == (category, batch)]
            assert [row["row"] for row in rows] == [*ROWS, "goodput"]
            assert all(row["same"] for row in rows)
            assert rows[0]["ratio"] == 1.0
            assert {row["tokens"] for row in rows} == {rows[0]["tokens"]}


def test_offline_rows_are_marked_and_nothing_beats_who_knows_the_text(result: SuiteResult) -> None:
    offline = _table(result, "offline")
    assert offline
    assert all(row["offline"] is True for row in offline)
    for category in {row["category"] for row in offline}:
        rows = {row["policy"]: row for row in offline if row["category"] == category}
        assert set(rows) == {"none", "retrieval", "eagle3", "dflash", "ddtree", "entropy",
                             "goodput", "clairvoyant"}  # fmt: skip
        best = rows["clairvoyant"]["tokens_per_s"]
        assert all(row["tokens_per_s"] <= best * 1.001 for row in rows.values())


def test_goals_say_what_was_found_and_the_file_is_json(
    options: SuiteOptions, result: SuiteResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_table(result, "goals")) >= 4
    monkeypatch.setattr(routing_suite, "run", lambda _options: result)
    file = run_suite("routing", options, tmp_path)
    assert json.loads(file.read_text())["quick"] is True


def _row(category: str, name: str, ratio: float) -> dict[str, Any]:
    return {"category": category, "batch": 1, "row": name, "is_static": name != "goodput",
            "ratio": ratio, "same": True}  # fmt: skip


def test_the_mix_is_a_geometric_mean_and_goals_look_at_the_least_category() -> None:
    rows = [
        _row("a", "none", 1.0), _row("a", "retrieval", 4.0), _row("a", "goodput", 4.0),
        _row("b", "none", 1.0), _row("b", "retrieval", 0.25), _row("b", "goodput", 0.9),
    ]  # fmt: skip
    mix = mix_table(rows)
    assert {row["row"]: round(row["mix"], 3) for row in mix.rows} == {
        "none": 1.0, "retrieval": 1.0, "goodput": 1.897,
    }  # fmt: skip
    goals = {row["goal"]: row for row in goals_table(rows, mix, 0.5, has_amx=False).rows}
    assert goals["goodput : best static arm, least category"]["found"] == 0.9
    assert not goals["goodput : none, least cell of any batch"]["met"]
    assert goals["goodput : none, on the mix"]["met"]


def test_a_cell_is_measured_once_unless_what_it_depends_on_changes(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure() -> list[dict[str, Any]]:
        measured.append(1)
        return [{"row": "none", "ratio": 1.0}]

    for facts in ({"commit": "a"}, {"commit": "a"}, {"commit": "b"}):
        assert Cells(tmp_path, facts).rows("chat, 1", measure) == [{"row": "none", "ratio": 1.0}]
    assert len(measured) == 2
    Cells(None, {}).rows("chat, 1", measure)
    assert len(measured) == 3


def test_categories_have_prompts_of_their_own() -> None:
    prompts = routing_prompts(3, 96)
    assert tuple(prompts) == CATEGORIES
    names = [prompt.name for some in prompts.values() for prompt in some]
    assert all(len(some) == 3 for some in prompts.values())
    assert len(set(names)) == 15
