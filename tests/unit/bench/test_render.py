"""Everything in docs/benchmarks.md and README's table comes from the JSON files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whiflash.bench import render
from whiflash.bench.suite import write_json


def result(**changes: Any) -> dict[str, Any]:
    machine = {"cpu": "Test CPU", "cores": 2, "memory_gib": 24.0, "has_amx": False, "gpu": None}
    origin = {
        "command": "whiflash bench core", "commit": "0123456789abcdef", "is_dirty": True,
        "date_utc": "2026-12-02T00:00:00+00:00", "machine": machine, "threads": 2,
        "versions": {"torch": "2.13.0"},
    }  # fmt: skip
    columns = [
        {"key": "what", "title": "what", "form": ""},
        {"key": "ratio", "title": "ratio", "form": ".2f"},
        {"key": "same", "title": "same text", "form": ""},
    ]
    rows = [
        {"what": "copy", "ratio": 2.345, "same": True},
        {"what": "chat", "ratio": None, "same": False},
    ]
    table = {"name": "t", "title": "A table", "note": "A note.", "columns": columns, "rows": rows}
    highlight = {"what": "copy", "figure": "2.3x", "twin": "none", "setting": "greedy"}
    return {
        "suite": "core", "quick": False, "title": "a suite", "provenance": origin,
        "setting": {"cache state": "cold"}, "tables": [table], "highlights": [highlight],
        **changes,
    }  # fmt: skip


def test_page_shows_figures_with_their_origin() -> None:
    page = render.render_page([result()])
    assert "| copy | 2.35 | yes |" in page or "| copy | 2.34 | yes |" in page
    assert "| chat | - | **no** |" in page
    assert "commit 0123456789ab with local changes" in page
    assert "Test CPU, 2 cores, 24 GiB, no AMX" in page
    assert "- cache state: cold" in page


def test_quick_runs_are_marked_and_kept_out_of_the_readme() -> None:
    quick = result(quick=True)
    assert "count for nothing" in render.render_page([quick])
    readme = render.render_readme(f"a\n{render.BEGIN}\n{render.END}\nb\n", [quick])
    assert "2.3x" not in readme


def test_readme_keeps_what_is_outside_the_markers() -> None:
    before = f"# Title\n{render.BEGIN}\nold\n{render.END}\ntail\n"
    after = render.render_readme(before, [result()])
    assert after.startswith("# Title\n")
    assert after.endswith("tail\n")
    assert "old" not in after
    assert "| copy | 2.3x | none | greedy; 2 cores, no AMX |" in after
    assert render.render_readme(after, [result()]) == after
    assert render.render_readme("no markers", [result()]) == "no markers"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "README.md").write_text(f"{render.BEGIN}\n{render.END}\n")
    results = tmp_path / "docs" / "benchmarks"
    results.mkdir(parents=True)
    write_json(results / "core.json", result())
    monkeypatch.setattr(render, "ROOT", tmp_path)
    return tmp_path


def test_check_fails_until_rendered_and_after_an_edit_by_hand(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render.main(["--check"]) == 1
    assert "make fix" in capsys.readouterr().err
    assert not (project / "docs" / "benchmarks.md").exists(), "--check writes nothing"
    assert render.main([]) == 0
    assert render.main(["--check"]) == 0
    page = project / "docs" / "benchmarks.md"
    page.write_text(page.read_text().replace("yes", "no"))
    assert render.main(["--check"]) == 1
