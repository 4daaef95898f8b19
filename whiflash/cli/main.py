"""Entry point of `whiflash`: verbs, `--version`, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from whiflash import __version__
from whiflash.cli.bench import bench
from whiflash.cli.calibrate import app as calibrate_app
from whiflash.cli.demo.verb import demo
from whiflash.cli.errors import INTERRUPTED, exit_status, report
from whiflash.cli.generate import generate
from whiflash.cli.keys import app as keys_app
from whiflash.cli.plan import plan
from whiflash.cli.replay import app as replay_app
from whiflash.cli.serve import serve
from whiflash.cli.status import status
from whiflash.cli.store.verbs import app as store_app
from whiflash.cli.train import app as train_app
from whiflash.cli.up import up

app = typer.Typer(
    name="whiflash",
    help="Serves a language model faster without changing its text.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(generate)
app.command()(plan)
app.command()(bench)
app.command()(demo)
app.command()(serve)
app.command()(up)
app.command()(status)
app.add_typer(keys_app)
app.add_typer(store_app)
app.add_typer(replay_app)
app.add_typer(calibrate_app)
app.add_typer(train_app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whiflash {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="and exit")
    ] = False,
) -> None:
    """Serves a language model faster without changing its text."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (default `sys.argv`) and returns its exit status: 0, 1 where a
    comparison failed or we have a fault, 2 where the caller can put something right."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = app(args=given or ["--help"], standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the last line of defence, nothing is lost
        report(error)
        return exit_status(error)
    if status == INTERRUPTED:  # typer turns Ctrl-C into a status
        report(KeyboardInterrupt())
    return status if isinstance(status, int) else 0


def main() -> None:
    """Console script."""
    sys.exit(run())
