"""Suite `routing` on a toy target with trained shapes of its own: every row is there, every text is
the same, and offline figures are marked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whiflash.bench import routing_run, routing_suite
from whiflash.bench.forced_engine import conversation
from whiflash.bench.recordings import RecordedRun, RecordedTurn
from whiflash.bench.routing_calibration import calibration_table
from whiflash.bench.routing_cells import Cells
from whiflash.bench.routing_engine import Asked
from whiflash.bench.routing_forced import RecordedEffort, RecordedText
from whiflash.bench.routing_peers import Peers
from whiflash.bench.routing_prompts import CATEGORIES, routing_prompts
from whiflash.bench.routing_rows import RULES, Checkpoints, routing_rows
from whiflash.bench.suite import SuiteOptions, SuiteResult, run_suite
from whiflash.testing.toy import write_toy
from whiflash.training.clock import TimeLimit
from whiflash.training.data.generations import Generations, GenerationSettings, plain_render
from whiflash.training.drafters.run import DFlashSettings, DrafterTraining, Eagle3Settings
from whiflash.training.drafters.trainer import StepSettings
from whiflash.training.features.extract import extract

ROWS = ["none", "retrieval", "eagle3 chain", "eagle3 tree", "dflash", "ddtree", "entropy"]
TEMPLATE = "{{ messages[-1]['content'][-60:] }}{% if tools and false %}<tool_call>{% endif %}"
RECORDED = RecordedEffort(2, 1, 24, 2, 1)
EFFORT = routing_suite.Effort(1, 24, 1, 6, 1, (2,), RECORDED, has_peers=False)
WRITTEN = tuple(range(8, 40))
RUNS = [
    RecordedRun(str(number), (RecordedTurn(np.array([3, 4, number], np.int32),
                                           np.array(WRITTEN, np.int32)),))
    for number in (5, 6)
]  # fmt: skip


def recorded(*_: object) -> list[RecordedText]:
    """Two runs that write the same, unknown to one store and known to the other."""
    told = tuple(conversation(run, 512) for run in RUNS)
    return [RecordedText("runs", "cold", told, [], 3),
            RecordedText("runs", "repeated task", told, RUNS, 3)]  # fmt: skip


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
        patch.setattr(routing_run, "recorded_texts", recorded)
        yield SuiteOptions(str(toy), root, is_quick=True, drafters=tuple(drafters))


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
            ran = [row for row in rows if not row.get("offline")]
            assert [row["row"] for row in ran] == [*ROWS, "goodput"]
            assert all(row["same"] for row in ran)
            assert ran[0]["ratio"] == 1.0
            assert {row["tokens"] for row in ran} == {ran[0]["tokens"]}
            assert max(row["to_best"] for row in ran if row["is_static"]) == 1.0
            assert [row["row"] for row in rows if row.get("offline")] == (
                ["clairvoyant (offline)"] if batch == 1 else []
            )
        assert rows[0].get("regret") is None, "nothing of several at once was led along a log"


def test_rows_that_chose_say_what_choosing_took(result: SuiteResult) -> None:
    rows = {row["row"]: row for row in _table(result, "live") if row["batch"] == 2}
    assert rows["none"]["catch_up"] == 0.0
    assert 0.0 < rows["goodput"]["routing"] < 1.0
    assert 0.0 < rows["eagle3 chain"]["catch_up"] < 1.0


def test_recorded_text_has_all_rows_and_a_store_that_knows_it_wins(result: SuiteResult) -> None:
    forced = _table(result, "forced")
    for store in ("cold", "repeated task"):
        rows = [row for row in forced if row["store"] == store]
        assert [row["row"] for row in rows] == [*ROWS, "goodput", "clairvoyant (offline)"]
        assert {row.get("dropped", 3) for row in rows} == {3}
        assert all(len(row["paces"]) == 2 for row in rows[:-1])
        assert all(row["regret"] is not None for row in rows
                   if row["row"] not in ("eagle3 tree", "neural"))  # fmt: skip
    lengths = {row["store"]: row["accepted_length"] for row in forced if row["row"] == "retrieval"}
    assert lengths["repeated task"] > lengths["cold"] + 2


def test_offline_rows_are_marked_and_nothing_beats_who_knows_the_text(result: SuiteResult) -> None:
    offline = _table(result, "offline")
    assert all(row["offline"] is True for row in offline)
    categories = {row["category"] for row in offline}
    assert {"runs, cold", "runs, repeated task"} < categories
    for category in categories:
        rows = {row["policy"]: row for row in offline if row["category"] == category}
        assert set(rows) == {*ROWS, "goodput", "clairvoyant"} - {"eagle3 tree"}
        best = rows["clairvoyant"]["tokens_per_s"]
        assert all(row["tokens_per_s"] <= best * 1.001 for row in rows.values())


def test_survival_is_held_against_what_came_true(result: SuiteResult) -> None:
    rows = _table(result, "calibration")
    assert {row["arm"] for row in rows} == {"retrieval", "eagle3", "dflash", "ddtree"}
    for row in rows:
        assert sum(one["nodes"] for one in row["bins"]) == row["nodes"]
        assert 0.0 <= row["error"] <= 1.0
    assert calibration_table([], None).rows == ()


def test_goals_say_what_was_found_and_the_file_is_json(
    options: SuiteOptions, result: SuiteResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_table(result, "goals")) >= 4
    monkeypatch.setattr(routing_suite, "run", lambda _options: result)
    file = run_suite("routing", options, tmp_path)
    assert json.loads(file.read_text())["quick"] is True


def test_a_cell_is_measured_once_unless_what_it_depends_on_changes(tmp_path: Path) -> None:
    measured: list[int] = []

    def measure() -> list[dict[str, Any]]:
        measured.append(1)
        return [{"row": "none", "ratio": 1.0}]

    for facts in ({"commit": "a"}, {"commit": "a"}, {"commit": "b"}):
        assert Cells(tmp_path, facts).rows("chat, 1", measure) == [{"row": "none", "ratio": 1.0}]
    assert len(measured) == 2


def test_a_log_whose_cell_was_not_finished_is_written_anew(tmp_path: Path) -> None:
    def survey(log: Path) -> list[dict[str, Any]]:
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as file:
            file.write("line\n")
        if len(tried) == 1:
            raise KeyboardInterrupt
        return [{"numbers": [1]}]

    tried = [1]
    with pytest.raises(KeyboardInterrupt):
        Cells(tmp_path, {}).logged("survey", survey)
    for _ in range(2):
        tried.append(1)
        log, rows = Cells(tmp_path, {}).logged("survey", survey)
        assert (log.read_text(), rows) == ("line\n", [{"numbers": [1]}])


def test_an_ended_run_goes_on_and_says_the_same(
    options: SuiteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended in the middle of the cells; what was measured before is not measured again."""
    kept = replace(options, cells=tmp_path)
    cells: list[str] = []
    whole = routing_run.single_cell

    def counted(*given: Any) -> list[dict[str, Any]]:
        cells.append(given[2])
        if len(cells) == 3:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(routing_run, "single_cell", counted)
    with pytest.raises(KeyboardInterrupt):
        routing_suite.run(kept)
    routing_suite.run(kept)
    assert cells == [*CATEGORIES[:3], *CATEGORIES[2:]]


def test_the_full_run_has_every_published_rule_with_and_without_trim_and_the_bandit() -> None:
    checkpoints = Checkpoints({"eagle3": "e", "dflash": "d"})
    short, full = ([row.name for row in routing_rows(checkpoints, 1.0, Path("r"), is_full)]
                   for is_full in (False, True))  # fmt: skip
    assert short == [*ROWS, "neural", "goodput"]
    more = [f"rules: {rule}{trim}" for rule in RULES for trim in ("", " + trim")]
    assert full == [*ROWS, "neural", *more, "bandit", "goodput"]
    assert routing_suite.FULL.batches == (4, 8)


def test_chains_are_as_they_are_shipped() -> None:
    assert Checkpoints.of("smollm2-135m", {}).chain == "tree=chain,depth=2"
    assert Checkpoints.of("/some/model", {}).chain == "tree=chain"


def test_a_peer_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whiflash.bench.llama_twin.find_spec", lambda _name: None)
    monkeypatch.setattr(
        "whiflash.bench.routing_peers.faster_dtype", lambda *_: (_Twin(), {"float32": 1.0})
    )
    with ExitStack() as stack:
        peers = Peers.open("smollm2-135m", Path(), Asked((1,), 4), stack)
        assert list(peers.runs(Asked((1,), 4))) == ["transformers", "its prompt lookup"]
        (row,) = peers.left_out("chat")
        assert (row["row"], row["shares"]) == ("llama.cpp", "not installed")


class _Twin:
    def generate(self, *_: object, **__: object) -> list[int]:
        return []

    def close(self) -> None: ...


def test_categories_have_prompts_of_their_own() -> None:
    prompts = routing_prompts(3, 96)
    assert tuple(prompts) == CATEGORIES
    names = [prompt.name for some in prompts.values() for prompt in some]
    assert all(len(some) == 3 for some in prompts.values())
    assert len(set(names)) == 15
