"""Renders docs/benchmarks.md, docs/reliability.md and README's results table from their JSON.

`python -m whiflash.bench.render` writes them, with `--check` it only compares (exit 1 on a
difference). Nothing in them is typed by hand. Plots (docs/plots) are drawn too where matplotlib is
there; their bytes depend on its version, so that they are not compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whiflash.bench.plots import draw, has_matplotlib, plots_of
from whiflash.bench.reliability import read_reliability, render_reliability
from whiflash.bench.suite import read_results

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
_INTRO = """# Benchmarks

Rendered from `docs/benchmarks/*.json` by `make bench` and `make fix`; do not edit.
Every row has its twin from the same run: what is compared ran in alternation. A lower bound is
the 95 % order-statistic bound of the median over pairs. Trust ratios, not milliseconds.
"""


def render_page(results: Sequence[Mapping[str, Any]]) -> str:
    """The whole of docs/benchmarks.md."""
    parts = [_INTRO]
    parts.extend("\n".join(_suite(result)) for result in results)
    return "\n".join(parts).rstrip() + "\n"


def render_readme(readme: str, results: Sequence[Mapping[str, Any]]) -> str:
    """`readme` with what stands between the markers made anew; unchanged without markers."""
    if BEGIN not in readme or END not in readme:
        return readme
    head, rest = readme.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return f"{head}{BEGIN}\n{_highlights(results)}\n{END}{tail}"


def _suite(result: Mapping[str, Any]) -> Iterator[str]:
    origin = result["provenance"]
    machine = origin["machine"]
    yield f"## {result['suite']}: {result['title']}\n"
    if result["quick"]:
        yield "**A quick run: its figures count for nothing.**\n"
    yield f"- command `{origin['command']}`, {origin['date_utc']}, {_commit(origin)}"
    yield f"- machine: {_machine(machine)}, {origin['threads']} threads"
    yield f"- versions: {', '.join(f'{k} {v}' for k, v in origin['versions'].items())}"
    for name, value in result["setting"].items():
        yield f"- {name}: {value}"
    for table in result["tables"]:
        yield f"\n### {table['title']}\n"
        yield from _table(table)
        yield f"\n{table['note']}"
    for file, caption in plots_of(result):
        yield f"\n![{caption}](plots/{file})"
    yield ""


def _commit(origin: Mapping[str, Any]) -> str:
    if origin["commit"] is None:
        return "no checkout"
    return f"commit {origin['commit'][:12]}{' with local changes' if origin['is_dirty'] else ''}"


def _machine(machine: Mapping[str, Any]) -> str:
    words = [machine["cpu"], f"{machine['cores']} cores", f"{machine['memory_gib']:.0f} GiB"]
    words.append("AMX" if machine["has_amx"] else "no AMX")
    if machine["gpu"]:
        words.append(machine["gpu"])
    return ", ".join(words)


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    columns = table["columns"]
    yield "| " + " | ".join(column["title"] for column in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in table["rows"]:
        cells = (_cell(row.get(column["key"]), column["form"]) for column in columns)
        yield "| " + " | ".join(cells) + " |"


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    return format(value, form) if form else str(value)


def _highlights(results: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| what | result | twin | setting |", "|---|---|---|---|"]
    for result in results:
        if result["quick"]:
            continue
        machine = "AMX" if result["provenance"]["machine"]["has_amx"] else "no AMX"
        where = f"{result['provenance']['machine']['cores']} cores, {machine}"
        lines.extend(
            f"| {item['what']} | {item['figure']} | {item['twin']} | {item['setting']}; {where} |"
            for item in result["highlights"]
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """0 if all is as rendered (or was written), 1 if `--check` finds a difference."""
    results = read_results(ROOT / "docs" / "benchmarks")
    page, readme = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
    wanted = {
        page: render_page(results),
        readme: render_readme(readme.read_text(encoding="utf-8"), results),
    }
    faults = ROOT / "docs" / "reliability" / "faults.json"
    if faults.is_file():
        wanted[ROOT / "docs" / "reliability.md"] = render_reliability(read_reliability(faults))
    stale = [
        file for file, text in wanted.items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]  # fmt: skip
    if "--check" in arguments:
        for file in stale:
            print(f"{file.relative_to(ROOT)} differs from its JSON; run: make fix", file=sys.stderr)
        return int(bool(stale))
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted[file], encoding="utf-8")
        print(f"rendered {file.relative_to(ROOT)}")
    _draw(results)
    return 0


def _draw(results: Sequence[Mapping[str, Any]]) -> None:
    wanted = [result for result in results if any(plots_of(result))]
    if wanted and not has_matplotlib():
        print("plots left out: matplotlib is not installed (extra `bench`)", file=sys.stderr)
        return
    for result in wanted:
        for file in draw(result, ROOT / "docs" / "plots"):
            print(f"drew {file.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
