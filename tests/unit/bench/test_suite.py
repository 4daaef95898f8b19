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
