"""Plots of the suite `routing`, drawn from its JSON alone (extra `bench`: matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUITE: Final = "routing"
SALT: Final = "whiflash"
"""Of the ids in an SVG: with it, and without a date, the same figures give the same file."""
Result = Mapping[str, Any]
Row = Mapping[str, Any]


def has_matplotlib() -> bool:
    return find_spec("matplotlib") is not None


def plots_of(result: Result) -> Iterator[tuple[str, str]]:
    """File and title of each plot of a suite; none of a quick run."""
    if result["suite"] == SUITE and not result["quick"]:
        yield from ((f"{SUITE}_{name}.svg", title) for name, (title, _) in _PLOTS.items())


def draw(result: Result, folder: Path) -> list[Path]:
    """Writes them; the files. Raises ModuleNotFoundError without matplotlib."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    files = []
    with mpl.rc_context({"svg.hashsalt": SALT, "svg.fonttype": "none", "font.size": 9}):
        for name, title in plots_of(result):
            figure = Figure(figsize=(8.0, 4.5), layout="constrained")
            _, paint = _PLOTS[name.removeprefix(f"{SUITE}_").removesuffix(".svg")]
            axes = figure.subplots()
            paint(axes, result)
            axes.set_title(title)
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / name, format="svg", metadata={"Date": None})
            files.append(folder / name)
    return files


def _rows(result: Result, table: str) -> Sequence[Row]:
    found = next((one for one in result["tables"] if one["name"] == table), None)
    return found["rows"] if found is not None else ()


def _reliability(axes: Axes, result: Result) -> None:
    """What was said of nodes, by tenths, and the share that came true."""
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for row in _rows(result, "calibration"):
        bins = row["bins"]
        style = "o-" if row["who"] == "its draft" else "s--"
        axes.plot([one["said"] for one in bins], [one["true"] for one in bins], style,
                  markersize=4, label=f"{row['arm']}, {row['who']}")  # fmt: skip
    axes.set(xlabel="survival that was said", ylabel="share that came true", xlim=(0, 1),
             ylim=(0, 1))  # fmt: skip
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _accepted_length(axes: Axes, result: Result) -> None:
    rows = [row for row in _rows(result, "live") if row["batch"] == 1]
    _bars(axes, rows, "accepted_length")
    axes.set(ylabel="tokens a round (AL), one request at a time")
    axes.axhline(1.0, color="0.7", linewidth=1)


def _goodput(axes: Axes, result: Result) -> None:
    """Live and recorded texts, one request at a time, with the lower bounds."""
    rows = [row for row in _rows(result, "live") if row["batch"] == 1]
    rows += _rows(result, "forced")
    _bars(axes, rows, "ratio")
    axes.set(ylabel="goodput, ratio to none (line: lower bound)")
    axes.axhline(1.0, color="0.7", linewidth=1)


def _bars(axes: Axes, rows: Sequence[Row], key: str) -> None:
    """A group per text, a bar per row of the tables."""
    known = [row for row in rows if row.get(key) is not None and row["row"] != "none"]
    texts = list(dict.fromkeys(row["category"] for row in known))
    names = list(dict.fromkeys(row["row"] for row in known))
    width = 0.8 / max(len(names), 1)
    for place, name in enumerate(names):
        mine = [row for row in known if row["row"] == name]
        middles = [texts.index(row["category"]) + (place + 0.5) * width - 0.4 for row in mine]
        heights = [float(row[key]) for row in mine]
        axes.bar(middles, heights, width, color=f"C{place % 10}", label=name,
                 hatch="//" if place >= 10 else None)  # fmt: skip
        if key == "ratio":
            axes.vlines(middles, [_bound(row) for row in mine], heights, color="black",
                        linewidth=0.8)  # fmt: skip
    axes.set_xticks(range(len(texts)), [text.replace(", ", "\n") for text in texts], fontsize=7)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def _bound(row: Row) -> float:
    """The bar's own end where there is no bound."""
    lower = row.get("lower")
    return float(row["ratio"] if lower is None else lower)


_PLOTS: Final[Mapping[str, tuple[str, Callable[[Axes, Result], None]]]] = {
    "goodput": ("Goodput against no drafting", _goodput),
    "accepted_length": ("Accepted length by text", _accepted_length),
    "reliability": ("Survival: said and come true", _reliability),
}
