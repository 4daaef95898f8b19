"""The store that a verb works on: opened here, or through the server that holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from whiflash.cli.store.address import noted_address
from whiflash.config import EngineConfig, read_environment
from whiflash.core.errors import ConfigError
from whiflash.engine.store import FILE, OpenedLog, open_store, store_folder
from whiflash.serving.trajectories.conversation import Conversation, TurnReader
from whiflash.serving.trajectories.desk import BadRun, Run, StoreDesk
from whiflash.serving.trajectories.stored_turn import turn_json
from whiflash.trajectories.errors import StoreError, StoreLockedError
from whiflash.trajectories.file_log.presence import is_store
from whiflash.trajectories.keeper import Added, Deleted, NamespaceStats, StoreKeeper
from whiflash.trajectories.scope import DEFAULT_PROJECT, DEFAULT_TENANT, Owner, Scopes, Selection

if TYPE_CHECKING:
    from whiflash.client import Client
    from whiflash.models.tokenizer import HFTokenizer

Json = Mapping[str, Any]
DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Place:
    """What the flags say: a store (None: the user's data folder), or a server's gRPC address; the
    owner, and the model whose tokenizer and template conversations are written with."""

    store: str | None = None
    server: str | None = None
    tenant: str | None = None
    project: str | None = None
    model: str | None = None
    chat_template: Path | None = None
    assume_noeviction: bool = False
    redact: str | None = None


@dataclass(frozen=True, slots=True)
class What:
    """What is deleted: `kind` is run, subject, project or tenant."""

    kind: str
    name: str = ""

    @property
    def described(self) -> str:
        """Goes behind "turns"."""
        if self.kind == "subject":
            return f"of end user {self.name!r}"
        return f"of run {self.name!r}" if self.kind == "run" else f"of the whole {self.kind}"


class Desk(Protocol):
    """Both raise WhiFlashError."""

    def add(self, runs: Sequence[Run]) -> tuple[Added, list[BadRun]]: ...

    def export(self) -> Iterator[Json]: ...

    def stats(self) -> list[NamespaceStats]: ...

    def delete(self, what: What) -> Deleted: ...


@contextmanager
def open_desk(place: Place, *, may_create: bool = False) -> Iterator[Desk]:
    """The desk of the place. A file store that a server holds is reached through that server; one
    that is not there is made only with `may_create`.
    Raises ConfigError, StoreLockedError, StoreError."""
    address = place.server
    if address is None:
        store = place.store or FILE
        config = EngineConfig.of(
            store=store, assume_noeviction=place.assume_noeviction, redact=place.redact or ""
        )
        if not may_create:
            require_store(store)
        try:
            opened = open_store(config)
        except StoreLockedError as error:
            address = _holders_address(store, error)
        else:
            with closing(opened):
                yield LocalDesk(opened, place)
            return
    with remote_desk(address, place) as desk:
        yield desk


def require_store(store: str) -> None:
    """Raises ConfigError where a folder holds no store; writes nothing."""
    folder = store_folder(store)
    if folder is None or is_store(folder):
        return
    raise ConfigError(
        f"there is no trajectory store at {folder}; `whiflash serve` and `whiflash store import` "
        "make one, --store names another folder"
    )


def _holders_address(store: str, error: StoreLockedError) -> str:
    folder = store_folder(store)
    address = None if folder is None else noted_address(folder)
    if address is None:
        raise StoreLockedError(f"{error}; if it is a server, give its --server HOST:PORT") from None
    return address


class LocalDesk:
    """Works on an opened log. The model is looked for when a conversation has to be written."""

    def __init__(self, opened: OpenedLog, place: Place) -> None:
        self._opened = opened
        self._place = place
        self._tenant = place.tenant or DEFAULT_TENANT
        self._project = place.project or DEFAULT_PROJECT
        self._keeper = StoreKeeper(opened.log, Scopes(opened.keys), None)
        self._desk: StoreDesk | None = None

    def add(self, runs: Sequence[Run]) -> tuple[Added, list[BadRun]]:
        if self._desk is None:
            self._desk = _model_desk(self._opened, self._place)
        return self._desk.add(partial(Owner, self._tenant, self._project), runs)

    def export(self) -> Iterator[Json]:
        yield from map(turn_json, self._keeper.export(Selection(self._tenant, self._project)))

    def stats(self) -> list[NamespaceStats]:
        """Of the whole store unless an owner was named."""
        place = self._place
        if place.tenant is None and place.project is None:
            return self._keeper.stats(None)
        return self._keeper.stats(Selection(self._tenant, place.project))

    def delete(self, what: What) -> Deleted:
        project = Selection(self._tenant, self._project)
        match what.kind:
            case "run":
                return self._keeper.delete_run(project, what.name)
            case "subject":
                return self._keeper.delete_subject(project, what.name)
            case "project":
                return self._keeper.delete_all(project)
        return self._keeper.delete_all(Selection(self._tenant))


def _model_desk(opened: OpenedLog, place: Place) -> StoreDesk:
    """Reads tokenizer and template, not the weights. Raises ModelError."""
    from whiflash.chat.format import ChatFormat
    from whiflash.models.files import ModelFiles
    from whiflash.models.sources import resolve
    from whiflash.models.tokenizer import HFTokenizer

    name = place.model or DEFAULT_MODEL
    path = resolve(name)
    files = ModelFiles.at(path)
    tokenizer = HFTokenizer.load(files.folder, files.gguf_name)
    eos_ids = _eos_ids(files.folder, tokenizer)

    def turn_reader() -> TurnReader:
        return TurnReader(ChatFormat.for_model(path, name, place.chat_template), tokenizer, eos_ids)

    scopes = Scopes(opened.keys, tokenizer.fingerprint)
    return StoreDesk(opened.log, scopes, opened.redactor(tokenizer), turn_reader)


def _eos_ids(folder: Path, tokenizer: HFTokenizer) -> set[int]:
    """Those that the model's generation config names, and the tokenizer's."""
    try:
        stated = json.loads((folder / "generation_config.json").read_text("utf-8"))["eos_token_id"]
    except (OSError, ValueError, KeyError, TypeError):
        stated = []
    found = stated if isinstance(stated, list) else [stated]
    return {token for token in (*found, tokenizer.eos_id) if isinstance(token, int)}


@contextmanager
def remote_desk(address: str, place: Place) -> Iterator[Desk]:
    """Through a server's TrajectoryService; the API key is WHIFLASH_API_KEY. Raises ConfigError
    for flags that the server decides, StoreError for what it answers."""
    decided = ("tenant", "project", "model", "chat_template", "redact")
    given = [name for name in decided if getattr(place, name) is not None]
    if given:
        raise ConfigError(
            f"the server at {address} holds the store: its API key decides on tenant and project, "
            f"its configuration on tokens and redaction; leave out --{given[0].replace('_', '-')}"
        )
    try:
        from whiflash.client import CallError, Client
    except ImportError:
        raise ConfigError(
            "a server's store is reached by gRPC, which is not installed; install it with: "
            "pip install 'whiflash[serve]'"
        ) from None
    client = Client(address, api_key=read_environment("WHIFLASH_API_KEY"), max_retries=3)
    try:
        with client:
            yield RemoteDesk(client)
    except CallError as error:
        raise StoreError(f"the server at {address} says: {error}") from None


@dataclass(frozen=True, slots=True)
class RemoteDesk:
    """Works through a server."""

    client: Client

    def add(self, runs: Sequence[Run]) -> tuple[Added, list[BadRun]]:
        said = self.client.store.add([_fields(run) for run in runs])
        added = Added(
            said.num_added, said.num_known, said.num_masked, said.num_tokens,
            said.num_deleted, said.num_expired,
        )  # fmt: skip
        return added, [BadRun(bad.index, bad.reason) for bad in said.bad]

    def export(self) -> Iterator[Json]:
        yield from self.client.store.export()

    def stats(self) -> list[NamespaceStats]:
        return [
            NamespaceStats(
                one.namespace, one.num_records, one.num_runs, one.num_tokens, one.num_bytes,
                one.oldest_ms, one.newest_ms,
            )
            for one in self.client.store.stats()
        ]  # fmt: skip

    def delete(self, what: What) -> Deleted:
        fields: dict[str, dict[str, Any]] = {
            "run": {"run_id": what.name}, "subject": {"subject": what.name},
            "project": {"whole_project": True}, "tenant": {"whole_tenant": True},
        }  # fmt: skip
        said = self.client.store.delete(**fields[what.kind])
        return Deleted(said.num_turns, said.num_namespaces)


def _fields(run: Run) -> dict[str, Any]:
    if not isinstance(run, Conversation):
        return dict(run)
    names = ("messages", "tools", "run_id", "agent", "subject", "model")
    return {name: getattr(run, name) for name in names}
