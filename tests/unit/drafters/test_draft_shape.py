"""What drafters say of their drafts holds for the drafts they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from whiflash.config import EngineConfig
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.obs.round_log import read_rounds
from whiflash.testing.toy import write_toy
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3


@pytest.mark.parametrize(
    ("kind", "options", "tree", "max_nodes"),
    [
        ("eagle3", "boundaries=1+2,tree=chain,depth=2", "chain", 2),
        ("eagle3", "boundaries=1+2,tree=chain,depth=6,nodes=3", "chain", 3),
        ("eagle3", "boundaries=1+2,tree=eagle2,depth=3,nodes=7,top_k=4", "eagle2", 7),
        ("dflash", "block=3", "chain", 2),
        ("ddtree", "nodes=5", "ddtree", 5),
    ],
)
def test_no_draft_is_longer_and_the_log_says_so(
    kind: str, options: str, tree: str, max_nodes: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))
    write = write_toy_eagle3 if kind == "eagle3" else write_toy_dflash
    config = EngineConfig(
        model=str(write_toy(tmp_path / "toy")), dtype="float64", memory=2**26, policy="survey",
        drafters=(f"{kind}:{write(tmp_path / 'd')},{options}",), store="memory",
        round_log=tmp_path / "rounds.zst",
    )  # fmt: skip
    with Engine(config) as engine:
        engine.generate("a b", SamplingParams(max_tokens=12))
    head, *records = read_rounds(tmp_path / "rounds.zst")
    assert head["shapes"] == {kind: {"tree": tree, "max_nodes": max_nodes}}
    lengths = [r["proposed"].get(kind, 0) for r in records if r["kind"] == "round"]
    assert max(lengths) == max_nodes
