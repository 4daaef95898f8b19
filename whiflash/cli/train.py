"""`whiflash train`: drafters and routers for one target, from text it wrote itself."""

from __future__ import annotations

import typer

from whiflash.cli.train_data import data
from whiflash.cli.train_drafters import dflash, eagle3
from whiflash.cli.train_features import features
from whiflash.cli.train_router import router

app = typer.Typer(
    name="train",
    help="Train drafters and routers for a target, in as many sittings as it takes.",
    no_args_is_help=True,
)
app.command()(data)
app.command()(features)
app.command()(eagle3)
app.command()(dflash)
app.command()(router)


@app.callback()
def _root() -> None:
    """Train drafters and routers for a target, in as many sittings as it takes."""
