"""Suite `store` from end to end with the real model, `--quick`: every table is there, the leak
shows, a restarted process drafts from the store, and the text is the same everywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from whiflash.cli.main import run

SAMPLES = Path(__file__).parents[1] / "data" / "replay"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("results")
    arguments = ["bench", "store", "--quick", "--data", str(SAMPLES), "--out", str(folder)]
    assert run(arguments) == 0
    record: dict[str, Any] = json.loads((folder / "store.json").read_text())
    return record


def rows_of(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (table,) = [table for table in result["tables"] if table["name"] == name]
    assert table["rows"]
    keys = {column["key"] for column in table["columns"]}
    assert all(keys <= row.keys() for row in table["rows"]), "a column without a value"
    rows: list[dict[str, Any]] = table["rows"]
    return rows


def test_every_table_is_there(result: dict[str, Any]) -> None:
    num_stores = 2 if shutil.which("redis-server") else 1
    assert len(rows_of(result, "visible")) == num_stores + 1
    assert len(rows_of(result, "loading")) == num_stores + 1
    assert len(rows_of(result, "index")) == 1
    for name in ("sources", "silos", "delays", "foreign", "rules"):
        rows_of(result, f"replay_{name}")
    assert result["quick"] is True


def test_the_injected_leak_shows_and_the_product_does_not_leak(result: dict[str, Any]) -> None:
    own, leak = rows_of(result, "isolation")
    assert own["auc_rounds"] == 0.5
    assert leak["auc_rounds"] == 1.0
    assert leak["hit_rounds"] < leak["miss_rounds"]


def test_the_demo_restarted_its_process_and_wrote_the_same_text(result: dict[str, Any]) -> None:
    rows = rows_of(result, "demo_file")
    assert all(row["same_text"] for row in rows)
    known = {row["name"]: row["known_tokens"] for row in rows}
    cold, taught, restarted, repeated = known.values()
    assert (cold, taught) == (0, 0)
    assert restarted == repeated > 0
    assert len({row["process"] for row in rows}) == 3
    repeat = rows[-1]
    assert repeat["accepted_length"] > 1.3 * rows[1]["accepted_length"]
