"""The plan as a person reads it."""

from __future__ import annotations

from whiflash.cli.plan import plan_lines


def test_nested_tables_and_values() -> None:
    plan = {
        "cache_folder": "/cache",
        "target": {"dtype": "bfloat16", "notes": []},
        "arms": ["none", "retrieval"],
        "verify_ms": [[1, 20.0], [8, 25.4321]],
        "limit": None,
        "log": False,
    }
    lines = "\n".join(plan_lines(plan)).splitlines()
    assert lines[0] == "cache_folder  /cache"
    assert lines[1] == "target"
    assert lines[2].split() == ["dtype", "bfloat16"]
    assert lines[2].startswith("  ")
    assert lines[3].split() == ["notes", "-"]
    assert lines[4].endswith("none, retrieval")
    assert lines[5].endswith("1: 20, 8: 25.43")
    assert lines[6].split() == ["limit", "-"]
    assert lines[7].split() == ["log", "no"]
