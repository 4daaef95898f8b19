"""Plots come from the JSON alone, the same figures giving the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whiflash.bench import plots, render


def result(**changes: Any) -> dict[str, Any]:
    live = [
        {"category": category, "batch": batch, "row": row, "ratio": ratio, "lower": lower,
         "accepted_length": length}
        for category in ("chat", "code") for batch in (1, 8)
        for row, ratio, lower, length in (("none", 1.0, 1.0, 1.0), ("goodput", 1.4, 1.2, 1.8),
                                          ("transformers", 0.6, None, None))
    ]  # fmt: skip
    bins = [{"said": 0.1, "true": 0.2, "nodes": 9}, {"said": 0.9, "true": 0.8, "nodes": 3}]
    calibration = [
        {"arm": "eagle3", "who": who, "bins": bins} for who in ("its draft", "the router")
    ]
    tables = [{"name": "live", "rows": live}, {"name": "calibration", "rows": calibration}]
    return {"suite": "routing", "quick": False, "tables": tables, **changes}


def test_plots_are_drawn_and_the_same_each_time(tmp_path: Path) -> None:
    files = plots.draw(result(), tmp_path / "a")
    assert [file.name for file in files] == [
        "routing_goodput.svg", "routing_accepted_length.svg", "routing_reliability.svg",
    ]  # fmt: skip
    for file, again in zip(files, plots.draw(result(), tmp_path / "b"), strict=True):
        assert file.read_bytes() == again.read_bytes()
    text = (tmp_path / "a" / "routing_goodput.svg").read_text()
    assert "goodput" in text
    assert "chat" in text
    assert "transformers" not in (tmp_path / "a" / "routing_accepted_length.svg").read_text()


@pytest.mark.parametrize("changes", [{"quick": True}, {"suite": "core"}])
def test_only_what_counts_is_drawn(changes: dict[str, Any], tmp_path: Path) -> None:
    assert plots.draw(result(**changes), tmp_path) == []


def test_rendering_without_matplotlib_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render, "has_matplotlib", lambda: False)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    render._draw([result()])
    assert "matplotlib is not installed" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
