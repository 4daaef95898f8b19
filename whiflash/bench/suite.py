"""Suites by name, and the file that a run leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from whiflash.bench.provenance import collect
from whiflash.core.errors import ConfigError

SUITES: Final[dict[str, str]] = {
    "acceptance": "whiflash.bench.acceptance_suite",
    "cluster": "whiflash.bench.cluster_suite",
    "core": "whiflash.bench.core_suite",
    "forced": "whiflash.bench.forced_suite",
    "routing": "whiflash.bench.routing_suite",
    "server": "whiflash.bench.server_suite",
    "store": "whiflash.bench.store_suite",
    "switching": "whiflash.bench.switching_suite",
}
"""Name -> module with `run(options) -> SuiteResult`."""
_NEURAL: Final = ("acceptance", "cluster", "forced", "routing", "switching")
TAKEN_BY: Final[dict[str, tuple[str, ...]]] = {
    "--data": ("forced", "routing", "store"),
    "--drafter": _NEURAL,
    "--full": ("routing",),
}
"""Flags that not every suite has a use for."""


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What a person may choose. `is_quick` runs few short measurements: it shows that the suite
    works, its figures count for nothing and are marked so. drafters: checkpoints that stand in for
    shipped ones, like eagle3:FOLDER. is_full: the longest form of a suite that has one; cells:
    folder where a suite that can go on keeps what it has measured; None keeps nothing."""

    model: str
    data: Path | None = None
    is_quick: bool = False
    drafters: tuple[str, ...] = ()
    is_full: bool = False
    cells: Path | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `form` is a format spec for numbers ("" for text)."""

    key: str
    title: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a suite; each row maps column keys to values (None: not measured)."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Highlight:
    """One line of README's results table, figures already in words."""

    what: str
    figure: str
    twin: str
    setting: str


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What a suite measured, with the setting that all its tables share."""

    title: str
    setting: dict[str, Any]
    tables: tuple[Table, ...]
    highlights: tuple[Highlight, ...] = ()
    plan: dict[str, Any] = field(default_factory=dict)


def run_suite(name: str, options: SuiteOptions, folder: Path) -> Path:
    """Runs a suite and writes `folder`/`name`.json. Raises ConfigError on an unknown name, and on
    options that the suite would ignore."""
    check_options(name, options)
    folder.mkdir(parents=True, exist_ok=True)
    suite = import_module(SUITES[name])  # first: one may say how torch is to be loaded
    provenance = collect().record()
    result: SuiteResult = suite.run(options)
    record = {"suite": name, "quick": options.is_quick, "provenance": provenance}
    record |= asdict(result) | {"plan": without_places(result.plan)}
    return write_json(folder / f"{name}.json", record)


def check_options(name: str, options: SuiteOptions) -> None:
    """Raises ConfigError, naming both of what excludes each other."""
    if name not in SUITES:
        raise ConfigError(f"no benchmark suite {name!r}; suites: {', '.join(sorted(SUITES))}")
    given = {
        "--data": options.data is not None,
        "--drafter": bool(options.drafters),
        "--full": options.is_full,
    }
    for flag, suites in TAKEN_BY.items():
        if given[flag] and name not in suites:
            raise ConfigError(
                f"the suite {name} and {flag} exclude each other; leave {flag} out, or take one "
                f"of: {', '.join(suites)}"
            )
    if options.is_full and options.is_quick:
        raise ConfigError("--quick and --full exclude each other; leave one of them out")
    if options.data is not None and not options.data.is_dir():
        raise ConfigError(f"--data {options.data} is no folder; name the one with the data")


def without_places(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan without the folders of the machine it was made on, which a published file must not
    name."""
    return {key: value for key, value in plan.items() if not key.endswith("_folder")}


def write_json(file: Path, record: dict[str, Any]) -> Path:
    """Writes whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return part.replace(file)


def read_results(folder: Path) -> Sequence[dict[str, Any]]:
    """All results of a folder, by suite name."""
    files = sorted(folder.glob("*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]
