"""`whiflash replay`: `rounds LOG`, policies along the texts of a round log, and `text`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options
from whiflash.cli.replay_text import text
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.routing.replay.log import LoggedRun

app = typer.Typer(
    name="replay", help="Evaluate policies and the trajectory store offline.", no_args_is_help=True
)

Logs = Annotated[
    list[Path],
    typer.Argument(help="round logs (round_log in the configuration; those of several sittings of "
                   "a survey count as one)", metavar="LOG..."),
]  # fmt: skip
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="as for serve, like rules:rule=respec,trim=yes; repeat for several [goodput]; the "
        "oracle and `static:arm=none` are always shown",
    ),
]
WorkDir = Annotated[
    Path | None,
    typer.Option("--work-dir", help="of the survey: its features hold the hidden states that "
                 "`neural` needs and the heads of `goodput` read"),
]  # fmt: skip
HeldOut = Annotated[
    bool,
    typer.Option("--held-out", help="only texts of held-out prompts, which no router learned from "
                 "(with --work-dir)"),
]  # fmt: skip
CostLog = Annotated[
    Path | None,
    typer.Option("--costs", help="another round log, of the same model and arms, that says what a "
                 "round costs: a survey runs in batches that a server may not have"),
]  # fmt: skip
_PLAIN = "static:arm=none"
_COLUMNS = (
    ("policy", "policy", ""), ("tokens/s", "tokens_per_s", ".1f"), ("AL", "accepted_length", ".2f"),
    ("regret", "regret", ".1%"), ("switches", "switches", "d"), ("rounds", "rounds", "d"),
    ("tokens", "tokens", "d"), ("censored", "censored", "d"),
)  # fmt: skip


@app.callback()
def _root() -> None:
    """Evaluate policies and the trajectory store offline."""


app.command()(text)


@app.command()
def rounds(
    logs: Logs,
    policy: Policies = None,
    work_dir: WorkDir = None,
    held_out: HeldOut = False,
    costs: CostLog = None,
    as_json: options.Json = False,
) -> None:
    """Lead policies along the texts of round logs, at the costs that were measured.

    A log must hold several arms' proposals at the same roots: record it with --policy survey.
    Where a policy takes an arm that was not proposed at a root, the round is censored: it is
    counted, and left out of all else.
    """
    results = replay(logs, policy or ["goodput"], work_dir, held_out, costs)
    if as_json:
        typer.echo(json.dumps(results))
    else:
        typer.echo("\n".join(table(results)))


def replay(
    logs: Sequence[Path],
    policies: Sequence[str],
    work_dir: Path | None = None,
    is_held_out: bool = False,
    costs: Path | None = None,
) -> list[dict[str, Any]]:
    """A row per policy, plain decoding first, the oracle last. Raises ConfigError."""
    from whiflash.routing.policies.registry import ORACLE, check_policy
    from whiflash.routing.replay.evaluate import evaluate, put_costs, result

    for policy in policies:
        if policy != ORACLE:
            check_policy(policy)
    if is_held_out and work_dir is None:
        raise ConfigError("--held-out needs --work-dir, which knows the texts of the survey")
    found = {log: _runs(log) for log in logs}
    if work_dir is not None:
        from whiflash.training.router.replay import put_hidden

        for log, some in found.items():
            put_hidden(some, log, work_dir, is_held_out)
    runs = [run for some in found.values() for run in some if run.turns]
    if costs is not None:
        put_costs(runs, _runs(costs))
    walks = evaluate(runs, [_PLAIN, *dict.fromkeys(policies)], work_dir is not None)
    return [result(walk, walks[-1]) for walk in walks]


def _runs(log: Path) -> list[LoggedRun]:
    from whiflash.obs.round_log import read_rounds
    from whiflash.routing.replay.log import logged_runs

    try:
        return logged_runs(read_rounds(log))
    except FileNotFoundError:
        raise ConfigError(f"there is no round log {log}; give the path of round_log") from None


def table(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The rows for a person."""
    rows = [[heading for heading, _, _ in _COLUMNS] + ["shares"]]
    for found in results:
        cells = {**found, "censored": found["censored_arm"] + found["censored_root"]}
        shares = ", ".join(f"{arm} {share:.0%}" for arm, share in found["shares"].items())
        rows.append([format(cells[key], form) for _, key, form in _COLUMNS] + [shares])
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    for row in rows:
        first = f"{row[0]:<{widths[0]}}"
        numbers = (f"{cell:>{w}}" for cell, w in zip(row[1:-1], widths[1:], strict=True))
        yield "  ".join([first, *numbers, row[-1]]).rstrip()
