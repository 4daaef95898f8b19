"""docs/api.md says what the code does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from whiflash.serving import openai
from whiflash.serving.errors import STATUSES
from whiflash.serving.openai.problems import BODY_CODES, ROUTE_ERRORS
from whiflash.serving.openai.render import PAGE, main, render_page

ERRORS = render_page().split("## Errors")[1]


def raised() -> Iterator[tuple[int, str | None]]:
    """Status and code of every Problem that is written out in the front end."""
    for file in sorted(Path(openai.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem"):
                continue
            codes = [word.value for word in node.keywords if word.arg == "code"]
            fixed = [code.value for code in codes if isinstance(code, ast.Constant)]
            status = node.args[0]
            if isinstance(status, ast.Constant) and len(fixed) == len(codes):
                yield status.value, fixed[0] if fixed else None


def row(status: int, code: str | None) -> str:
    return f"| {status} | `invalid_request_error` | {f'`{code}`' if code else '-'} |"


def test_the_page_is_as_rendered() -> None:
    assert PAGE.read_text("utf-8") == render_page()
    assert main(["--check"]) == 0


def test_all_that_a_client_can_be_told_is_listed() -> None:
    told = {*raised(), *((status.http, status.code) for _, status in STATUSES)}
    told |= {(400, code) for code in BODY_CODES}
    told |= {(status, code) for status, (_, code) in ROUTE_ERRORS.items()}
    assert {(413, "request_too_large"), (415, None), (405, None)} <= told
    for status, code in told:
        assert any(
            line.startswith(f"| {status} |") and line.endswith(f"| `{code}` |" if code else "| - |")
            for line in ERRORS.splitlines()
        ), (status, code)
    assert row(400, "unsupported_value") in ERRORS
    assert row(400, "integer_below_min_value") in ERRORS
    assert row(405, None) in ERRORS


def test_each_row_stands_once() -> None:
    rows = [line for line in ERRORS.splitlines() if line.startswith("| 4")]
    assert len(set(rows)) == len(rows)
