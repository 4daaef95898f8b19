"""docs/add_policy.md: its one file and one line are all that a policy needs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from whiflash.core.rows import NONE
from whiflash.routing.policies import registry

GUIDE = Path(__file__).parents[4] / "docs" / "add_policy.md"


@pytest.fixture
def added(monkeypatch):
    """The guide's file and line, put in place."""
    text = GUIDE.read_text()
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (line,) = re.findall(r'^    "longmatch": (\w+),$', text, re.MULTILINE)
    module: dict[str, object] = {"__name__": "longmatch"}
    exec(compile(source, str(GUIDE), "exec"), module)
    monkeypatch.setattr(registry, "POLICIES", {**registry.POLICIES, "longmatch": module[line]})
    return ast.get_docstring(ast.parse(source)) or ""


def test_the_guides_policy_routes(added, world, text):
    scene = world([text["copy"], text["prose"]], "longmatch", min_match=4, plain_share=0.0).run(50)
    assert scene.arms[0].count("retrieval") > 40
    assert set(scene.arms[1]) == {NONE}


def test_the_guides_docstring_keeps_the_order_that_it_asks_for(added):
    parts = ["longmatch: ", "What it does.", "When it is neutral.", "Parameters.", "Example."]
    places = [added.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] == 0
