"""`whiflash demo` with the real model and its shipped drafters: several arms write, and the text is
that of plain decoding."""

from __future__ import annotations

import json

import pytest

from whiflash.cli.main import run


def test_shipped_drafters_write_where_nothing_is_to_be_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    size = ["--kind", "writing", "--turns", "1", "--no-repeat", "--dtype", "bfloat16"]
    assert run(["demo", *size, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["same_text"] is True
    passes = [found[key] for key in found["passes"]]
    tokens = {
        arm: sum(one["arms"].get(arm, {}).get("emitted", 0) for one in passes)
        for arm in ("none", "retrieval", "eagle3")
    }
    assert all(count > 0 for count in tokens.values()), tokens
