"""Pages link to what is there, and to what one needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)")


def linked(page: Path) -> list[Path]:
    """Files of the project that a page links to."""
    found = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    return [(page.parent / link).resolve() for link in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [file for file in linked(page) if not file.exists()] == []


def test_every_example_configuration_is_linked_where_deploying_is_told() -> None:
    examples = {*(ROOT / "deploy/config").iterdir(), ROOT / "deploy/local/cluster.toml"}
    assert examples
    assert examples <= set(linked(ROOT / "docs" / "deploy.md"))
