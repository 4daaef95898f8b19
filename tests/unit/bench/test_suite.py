"""Suites by name; a result is written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from whiflash.bench import suite
from whiflash.bench.suite import Column, SuiteOptions, SuiteResult, Table
from whiflash.core.errors import ConfigError


def test_unknown_suite_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no benchmark suite 'cor'; suites: .*core"):
        suite.run_suite("cor", SuiteOptions("m"), tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("store", SuiteOptions("m", is_full=True), "suite store and --full exclude each other"),
        ("core", SuiteOptions("m", is_full=True), "one of: routing$"),
        ("core", SuiteOptions("m", drafters=("eagle3:x",)), "suite core and --drafter exclude"),
        ("server", SuiteOptions("m", data=Path()), "suite server and --data exclude"),
        ("routing", SuiteOptions("m", is_quick=True, is_full=True), "--quick and --full exclude"),
        ("store", SuiteOptions("m", data=Path("/nope")), "--data /nope is no folder"),
    ],
)
def test_options_that_a_suite_would_ignore_are_refused_before_it_begins(
    name: str,
    options: SuiteOptions,
    rule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite, "import_module", lambda _: pytest.fail("it was begun"))
    with pytest.raises(ConfigError, match=rule):
        suite.run_suite(name, options, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "word"), [("data", "options.data"), ("drafters", "neural_folders"),
                       ("full", "options.is_full")],
)  # fmt: skip
def test_flags_are_taken_by_the_suites_that_read_them(name: str, word: str) -> None:
    flag = {"data": "--data", "drafters": "--drafter", "full": "--full"}[name]
    reading = set()
    for each, module in suite.SUITES.items():
        file = Path(suite.__file__).with_name(f"{module.rpartition('.')[2]}.py")
        if word in file.read_text("utf-8"):
            reading.add(each)
    assert reading == set(suite.TAKEN_BY[flag])


def test_result_file_holds_provenance_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table("t", "T", "n", (Column("a", "A"),), ({"a": 1},))
    ran: list[SuiteOptions] = []

    def run(options: SuiteOptions) -> SuiteResult:
        ran.append(options)
        plan = {"model_folder": "/home/someone/m", "cache_folder": "/c", "policy": "goodput"}
        return SuiteResult("title", {"model": options.model}, (table,), plan=plan)

    monkeypatch.setattr(suite, "import_module", lambda _: SimpleNamespace(run=run))
    file = suite.run_suite("core", SuiteOptions("m", is_quick=True), tmp_path / "new")
    (record,) = suite.read_results(tmp_path / "new")
    assert file.name == "core.json"
    assert ran == [SuiteOptions("m", is_quick=True)]
    assert record["suite"] == "core"
    assert record["quick"] is True
    assert record["provenance"]["machine"]["cores"] >= 1
    assert record["tables"][0]["rows"] == [{"a": 1}]
    assert record["plan"] == {"policy": "goodput"}


def test_a_failed_write_leaves_the_old_result(tmp_path: Path) -> None:
    file = suite.write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        suite.write_json(file, {"a": object()})
    assert suite.read_results(tmp_path) == [{"a": 1}]
