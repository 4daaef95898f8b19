"""`whiflash keys new`: makes an API key for `whiflash serve --keys FILE`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from whiflash.serving.caller import Scope

app = typer.Typer(name="keys", help="API keys of a server.", no_args_is_help=True)

File = Annotated[
    Path | None, typer.Option("--file", help="key file to add it to, made if it is not there")
]
KeyId = Annotated[str, typer.Option("--id", help="public name of the key, as in logs")]
Tenant = Annotated[str, typer.Option("--tenant", help="who owns it; nothing is shared beyond")]
Project = Annotated[str, typer.Option("--project", help="scope of caches and stored runs")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="generate, store, debug, admin; repeat for several [generate]"),
]
InFlight = Annotated[int | None, typer.Option("--max-in-flight", help="calls at once")]
Rate = Annotated[int | None, typer.Option("--tokens-per-minute", help="prompt and answer")]
Weight = Annotated[float, typer.Option("--weight", help="share of a busy server")]

SharesUsers = Annotated[
    bool, typer.Option("--shares-users", help="end users of the project draft from each other")
]


@app.callback()
def _keys() -> None:
    """API keys of a server."""


@app.command()
def new(
    key_id: KeyId,
    tenant: Tenant,
    project: Project = "default",
    scope: Scopes = None,
    max_in_flight: InFlight = None,
    tokens_per_minute: Rate = None,
    weight: Weight = 1.0,
    shares_users: SharesUsers = False,
    file: File = None,
) -> None:
    """Make a key and print it once; the file keeps only its digest. A running server reads its
    key file at start."""
    from whiflash.serving.keys import KeyLimits, key_entry, new_key, parse_keys

    secret = new_key()
    limits = KeyLimits(max_in_flight, tokens_per_minute, weight)
    entry = key_entry(
        secret, key_id, tenant, project, _scopes(scope or ["generate"]), limits,
        shares_users=shares_users,
    )  # fmt: skip
    if file is None:
        parse_keys("the new key", entry)
        typer.echo(f"{secret}\n\n{entry}", nl=False)
        return
    held = file.read_text("utf-8") if file.exists() else ""
    text = f"{held.rstrip()}\n\n{entry}".lstrip()
    parse_keys(f"key file {file}", text)
    _write(file, text)
    typer.echo(secret)


def _scopes(names: list[str]) -> list[Scope]:
    from whiflash.serving.caller import Scope

    try:
        return [Scope(name) for name in names]
    except ValueError as error:
        raise ConfigError(f"{error}; choose from: {', '.join(Scope)}") from None


def _write(file: Path, text: str) -> None:
    """All of it or nothing, readable by its owner alone from the first byte on."""
    draft = file.with_name(file.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)
