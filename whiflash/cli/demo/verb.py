"""`whiflash demo`: agent sessions with and without drafting, also after a restart of the process,
and the same text."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from whiflash.cli import options
from whiflash.cli.demo.passes import KINDS, Extent, Stage
from whiflash.cli.demo.process import DemoProcess
from whiflash.cli.demo.results import PassResult, is_same_text
from whiflash.cli.demo.show import DemoScreen
from whiflash.config import EngineConfig
from whiflash.core.errors import ConfigError
from whiflash.drafters.registry import parse_specs
from whiflash.models.shipped import shipped_specs
from whiflash.trajectories import scope_keys
from whiflash.trajectories.open import MEMORY
from whiflash.trajectories.scope import Owner

Sessions = Annotated[
    int | None, typer.Option("--sessions", min=1, help="only so many sessions a pass [all]")
]
Turns = Annotated[
    int | None, typer.Option("--turns", min=1, help="only so many turns a session [all]")
]
Repeat = Annotated[
    bool, typer.Option("--repeat/--no-repeat", help="end with an identical repeat [yes]")
]
Kind = Annotated[
    str | None, typer.Option("--kind", help=f"only sessions of this kind: {', '.join(KINDS)} [all]")
]
Store = Annotated[
    str | None,
    typer.Option("--store", help="folder of a file store to work in [a temporary one]"),
]


def demo(
    model: options.Model = None,
    drafter: options.Drafter = None,
    policy: options.Policy = None,
    memory: options.Memory = None,
    dtype: options.DType = None,
    device: options.Device = None,
    chat_template: options.ChatTemplate = None,
    store: Store = None,
    redis: options.Redis = None,
    assume_noeviction: options.NoEviction = None,
    config: options.Config = None,
    sessions: Sessions = None,
    turns: Turns = None,
    kind: Kind = None,
    repeat: Repeat = True,
    as_json: options.Json = False,
) -> int:
    """Run agent sessions on real tools, drafting and plain, and compare: with an empty store, and
    with what earlier sessions left in it, after a restart (with --redis also in a second process).
    Exit 1 unless the text is the same."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"no kind of session {kind!r}; kinds: {', '.join(KINDS)}")
    place = options.store_of(store, redis)
    settings = options.engine_config(
        config, model=model, drafters=drafter, policy=policy, memory=memory, store=place,
        dtype=dtype, device=device, chat_template=chat_template,
        assume_noeviction=assume_noeviction,
    )  # fmt: skip
    if "drafters" not in settings.model_fields_set:
        every_arm = (*settings.drafters, *shipped_specs(settings.model))
        settings = settings.model_copy(update={"drafters": every_arm})
    console = Console(quiet=as_json, highlight=False)
    screen = DemoScreen(console)
    with _store(settings, place is not None) as where:
        console.print(where.told)
        extent = Extent(sessions, turns, kind, repeat)
        run = DemoRun(where, as_json, extent, console, screen)
        results = run.all(extent.stages(is_shared=redis is not None))
    screen.table(results)
    if as_json:
        typer.echo(json.dumps(record(results, where)))
    is_same = is_same_text(results)
    console.print(f"same text: {'yes' if is_same else 'no'}")
    return 0 if is_same else 1


@dataclass(frozen=True, slots=True)
class DemoStore:
    """Where the demo keeps its trajectories: `owner` is new each time, so that nothing that was
    there before can warm the cold passes."""

    settings: EngineConfig
    owner: Owner
    told: str
    kind: str
    is_temporary: bool


@contextmanager
def _store(settings: EngineConfig, is_given: bool) -> Iterator[DemoStore]:
    """Raises ConfigError on a store that a restart would not find again."""
    owner = Owner(f"demo-{secrets.token_hex(4)}")
    if not is_given:
        with tempfile.TemporaryDirectory(prefix="whiflash-demo-") as folder:
            told = f"store: the file log in {folder}, removed at the end"
            yield DemoStore(
                settings.model_copy(update={"store": folder}), owner, told, "file", True
            )  # fmt: skip
        return
    if settings.store == MEMORY:
        raise ConfigError("the demo restarts the process: --store memory would be empty again")
    is_redis = "://" in settings.store
    told = "store: " + ("the Redis log" if is_redis else f"the file log in {settings.store}")
    told += f", in namespaces of the tenant {owner.tenant} alone, deleted at the end"
    with _keys(is_redis):
        from whiflash.engine.store import open_store  # compiles kernels: not for every verb

        with closing(open_store(settings)) as opened:
            opened.log.namespaces()  # what is wrong with it is told before a model is loaded
        yield DemoStore(settings, owner, told, "redis" if is_redis else "file", False)


@contextmanager
def _keys(is_redis: bool) -> Iterator[None]:
    """Redis needs secrets that all processes know; what the demo stores does not outlive it, so
    where none are set it makes one for itself."""
    if not is_redis or scope_keys.environment_keys() is not None:
        yield
        return
    os.environ[scope_keys.VARIABLE] = scope_keys.new_scope_key("demo")
    try:
        yield
    finally:
        del os.environ[scope_keys.VARIABLE]


class DemoRun:
    """Starts the processes of one stage after the other and has them run their passes."""

    def __init__(
        self,
        where: DemoStore,
        is_quiet: bool,
        extent: Extent,
        console: Console,
        screen: DemoScreen,
    ) -> None:
        self._settings = where.settings
        self._where = where
        self._is_quiet = is_quiet
        self._extent = extent
        self._console = console
        self._screen = screen

    def all(self, stages: Sequence[Stage]) -> list[PassResult]:
        """All passes in order. Raises DemoProcessError."""
        results: list[PassResult] = []
        for stage in stages:
            with ExitStack() as running:
                for plans in stage:
                    process = running.enter_context(self._started())
                    results += [process.run(self._extent.shortened(plan)) for plan in plans]
                if stage is stages[-1] and not self._where.is_temporary:
                    process.forget()
        return results

    def _started(self) -> DemoProcess:
        """The first process decides on the number format; where the text could differ by it, all
        must have the same."""
        is_first = self._settings is self._where.settings
        self._console.print(
            "loading the model (the first start fetches and converts it) ..."
            if is_first else "starting a new process ..."
        )  # fmt: skip
        process = DemoProcess(self._settings, self._where.owner, self._is_quiet)
        if is_first:
            target = process.target
            self._settings = self._settings.model_copy(update={"dtype": target["dtype"]})
            self._console.print(
                f"{target['name']}: {target['dtype']} on {target['device']}, "
                f"row arithmetic {target['exactness']}"
            )
            self._screen.legend([spec.kind for spec in parse_specs(self._settings.arms)])
        return process


def record(results: Sequence[PassResult], where: DemoStore) -> dict[str, Any]:
    """For JSON: every pass under its key, all of them in `passes`."""
    passes = {result.key: result.record() for result in results}
    return {
        "warm_other_process": None,
        **passes,
        "passes": list(passes),
        "store": {
            "kind": where.kind, "is_temporary": where.is_temporary, "tenant": where.owner.tenant
        },
        "same_text": is_same_text(results),
    }  # fmt: skip
