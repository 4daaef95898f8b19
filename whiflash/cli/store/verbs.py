"""`whiflash store`: import, export, stats, delete, key."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from whiflash.cli import options
from whiflash.core.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from whiflash.cli.store.desks import Place, What
    from whiflash.trajectories.keeper import Deleted

app = typer.Typer(
    name="store", help="The trajectories that drafts are taken from.", no_args_is_help=True
)

Store = Annotated[
    str | None, typer.Option("--store", help="folder of the store [the user's data folder]")
]
Server = Annotated[
    str | None, typer.Option("--server", help="gRPC address of the server that holds the store")
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="whose [local]")]
Project = Annotated[str | None, typer.Option("--project", help="of the tenant [default]")]
Files = Annotated[
    list[Path], typer.Argument(help="recorded runs: .jsonl, .json, .traj, or .gz of these")
]
Agent = Annotated[str, typer.Option("--agent", help="label of runs that have none")]
Subject = Annotated[str, typer.Option("--subject", help="end user of runs that name none")]
Redact = Annotated[
    str | None,
    typer.Option("--redact", help="MODULE:FUNCTION that finds more to leave out (trajectories.md)"),
]
Out = Annotated[Path | None, typer.Option("--out", help="file to write [standard output]")]


@app.callback()
def _store() -> None:
    """The trajectories that drafts are taken from."""
    # Verbs say in one line what is wrong; a log's own warnings are for those who serve.
    logging.getLogger("whiflash").addHandler(logging.NullHandler())


@app.command("import")
def import_runs(
    files: Files,
    store: Store = None,
    redis: options.Redis = None,
    server: Server = None,
    tenant: Tenant = None,
    project: Project = None,
    agent: Agent = "",
    subject: Subject = "",
    model: options.Model = None,
    chat_template: options.ChatTemplate = None,
    redact: Redact = None,
    assume_noeviction: options.NoEviction = None,
    as_json: options.Json = False,
) -> int:
    """Add recorded runs: chats as JSON lines, results of tau-bench and BFCL, SWE-agent's .traj
    files, exports. What is there already is not added twice. Bad records are named and left out;
    then the exit status is 2."""
    from whiflash.cli.store.desks import open_desk
    from whiflash.cli.store.importing import Importer, progress_bar, refused

    place = _place(
        store, redis, server, tenant=tenant, project=project, model=model,
        chat_template=chat_template, redact=redact, assume_noeviction=assume_noeviction,
    )  # fmt: skip
    with (
        progress_bar(files, is_quiet=as_json) as bar,
        open_desk(place, may_create=True) as desk,
    ):
        importer = Importer(desk, agent, subject)
        importer.run(files, bar)
    for problem in importer.problems:
        print(f"whiflash: {problem}", file=sys.stderr)
    added = importer.added
    if as_json:
        typer.echo(json.dumps({**asdict(added), "bad": len(importer.problems)}))
    else:
        typer.echo(
            f"added {added.turns} turns of {added.tokens} tokens; {added.known} were there, "
            f"{added.masked} held nothing but secrets, {len(importer.problems)} records are bad"
            + refused(added)
        )
    return 2 if importer.problems else 0


@app.command()
def export(
    out: Out = None,
    store: Store = None,
    redis: options.Redis = None,
    server: Server = None,
    tenant: Tenant = None,
    project: Project = None,
    assume_noeviction: options.NoEviction = None,
) -> None:
    """Write the stored turns of a project as JSON lines, which `import` takes back."""
    from whiflash.cli.store.desks import open_desk

    place = _place(
        store, redis, server, tenant=tenant, project=project, assume_noeviction=assume_noeviction
    )
    with open_desk(place) as desk, _output(out) as file:
        for turn in desk.export():
            file.write(json.dumps(turn) + "\n")


@app.command()
def stats(
    store: Store = None,
    redis: options.Redis = None,
    server: Server = None,
    tenant: Tenant = None,
    project: Project = None,
    assume_noeviction: options.NoEviction = None,
    as_json: options.Json = False,
) -> None:
    """Count what is stored, by namespace; of one owner if named."""
    from whiflash.cli.store.desks import open_desk
    from whiflash.cli.store.importing import stats_table

    place = _place(
        store, redis, server, tenant=tenant, project=project, assume_noeviction=assume_noeviction
    )
    with open_desk(place) as desk:
        found = desk.stats()
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
    else:
        stats_table(found)


@app.command()
def delete(
    run: Annotated[str | None, typer.Option("--run", help="this run")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="all of this end user")] = None,
    whole_project: Annotated[bool, typer.Option("--whole-project")] = False,
    whole_tenant: Annotated[bool, typer.Option("--whole-tenant")] = False,
    store: Store = None,
    redis: options.Redis = None,
    server: Server = None,
    tenant: Tenant = None,
    project: Project = None,
    assume_noeviction: options.NoEviction = None,
) -> None:
    """Delete a run, an end user, a project or a tenant, on every replica. Where nothing is found
    the exit status is 2."""
    from whiflash.cli.store.desks import open_desk

    what = _what(run, subject, whole_project, whole_tenant)
    if whole_tenant and project is not None:
        raise ConfigError("--whole-tenant deletes all of its projects; leave out --project")
    place = _place(
        store, redis, server, tenant=tenant, project=project, assume_noeviction=assume_noeviction
    )
    with open_desk(place) as desk:
        deleted = desk.delete(what)
    if not deleted.turns:
        raise ConfigError(_nothing_found(what, deleted))
    typer.echo(f"deleted {deleted.turns} turns {what.described}")


@app.command()
def key(
    key_id: Annotated[str, typer.Argument(help="public id, of 16 characters at most")] = "k1",
) -> None:
    """Make a secret for WHIFLASH_STORE_KEYS, which every server of a Redis store needs. Put a new
    one in front of the old ones (comma between) to change it: what was stored before is no longer
    drafted from, but still exported and deleted."""
    from whiflash.trajectories.scope_keys import new_scope_key

    typer.echo(new_scope_key(key_id))


def _place(store: str | None, redis: str | None, server: str | None, **fields: Any) -> Place:
    from whiflash.cli.store.desks import Place

    given = {"store": store, "redis": redis, "server": server, **fields}
    empty = [name for name, value in given.items() if value == ""]
    if empty:
        raise ConfigError(f"--{empty[0]} is empty; leave it out or name one")
    named = options.store_of(store, redis)
    if named is not None and server is not None:
        raise ConfigError("--server excludes --store and --redis: it has a store; name one place")
    if named == "memory":
        raise ConfigError("a store in memory is its server's alone; reach it with --server")
    fields["assume_noeviction"] = bool(fields["assume_noeviction"])
    return Place(store=named, server=server, **fields)


def _what(run: str | None, subject: str | None, project: bool, tenant: bool) -> What:
    from whiflash.cli.store.desks import What

    asked = [What("run", run or "")] if run is not None else []
    asked += [What("subject", subject or "")] if subject is not None else []
    asked += [What("project")] if project else []
    asked += [What("tenant")] if tenant else []
    if len(asked) > 1:
        raise ConfigError(
            "name one thing to delete: --run, --subject, --whole-project and --whole-tenant "
            "exclude each other; a run is deleted for all its end users, an end user with all runs"
        )
    if not asked or (asked[0].kind in ("run", "subject") and not asked[0].name):
        raise ConfigError(
            "say what to delete: one of --run ID, --subject NAME, --whole-project, --whole-tenant"
        )
    return asked[0]


def _nothing_found(what: What, deleted: Deleted) -> str:
    if not deleted.namespaces:
        return f"there are no turns {what.described}; nothing was deleted"
    return (
        f"there are no turns {what.described} in the store; it was told to forget them all the "
        "same, as others may have some that have not reached it"
    )


def _output(out: Path | None) -> AbstractContextManager[IO[str]]:
    return nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8")
