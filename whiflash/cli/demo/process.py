"""A process of the demo: an engine of its own that runs the passes it is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from whiflash.chat.format import ChatFormat
from whiflash.cli.demo.pairs import PassRunner
from whiflash.cli.demo.passes import PassPlan
from whiflash.cli.demo.results import PassResult
from whiflash.cli.demo.show import DemoScreen
from whiflash.config import EngineConfig
from whiflash.core.errors import WhiFlashError
from whiflash.core.params import SamplingParams
from whiflash.trajectories.errors import StoreUnavailableError
from whiflash.trajectories.keeper import StoreKeeper
from whiflash.trajectories.log import LogLevel
from whiflash.trajectories.scope import Owner, Selection

STORE_S = 60.0
END_S = 20.0
WARM_UP = "one two three " * 100
WARM_UP_TOKENS = 12


class DemoProcessError(WhiFlashError):
    """A process of the demo could not be started, or ended; the message is its own."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A started process. target: the plan's, as JSON-able values."""

    pid: int
    target: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """What the process said instead of an answer."""

    message: str


class DemoProcess:
    """The parent's end. A new interpreter is started, nothing is inherited but the environment and
    the terminal. Raises DemoProcessError, also from `run` and `forget`."""

    def __init__(self, settings: EngineConfig, owner: Owner, is_quiet: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, settings, owner, is_quiet), daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            ready = self._answer()
        except BaseException:
            self.close()
            raise
        assert isinstance(ready, Ready)
        self.target = ready.target
        self.pid = ready.pid

    def run(self, plan: PassPlan) -> PassResult:
        """Waits until the pass is done and what it taught is written."""
        result = self._ask(plan)
        assert isinstance(result, PassResult)
        return result

    def forget(self) -> None:
        """Deletes from the store all that the demo wrote there."""
        self._ask("forget")

    def _ask(self, question: object) -> object:
        self._pipe.send(question)
        return self._answer()

    def _answer(self) -> object:
        try:
            answer = self._pipe.recv()
        except EOFError:
            self._process.join(END_S)
            raise DemoProcessError(
                f"a process of the demo ended with status {self._process.exitcode}"
            ) from None
        if isinstance(answer, Failure):
            raise DemoProcessError(answer.message)
        return answer

    def close(self) -> None:
        """Ends the process, its store written out. Idempotent."""
        self._pipe.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _serve(pipe: Connection, settings: EngineConfig, owner: Owner, is_quiet: bool) -> None:
    """The child: until the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from whiflash.engine.engine import Engine

    try:
        with Engine(settings) as engine:
            worker = _Worker(engine, owner, is_quiet)
            pipe.send(Ready(os.getpid(), engine.plan()["target"]))
            while True:
                pipe.send(worker.answer(pipe.recv()))
    except (EOFError, BrokenPipeError):
        return
    except (WhiFlashError, OSError) as error:
        pipe.send(Failure(str(error)))


def _end_with_parent() -> None:
    """A parent that was killed cannot end this process, which would go on for minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Worker:
    """An engine and what the demo asks of it."""

    def __init__(self, engine: Any, owner: Owner, is_quiet: bool) -> None:
        self._engine = engine
        self._owner = owner
        self._screen = DemoScreen(Console(quiet=is_quiet, highlight=False))
        chat = ChatFormat.for_model(
            engine.model_folder, engine.model_name, engine.config.chat_template
        )
        self._runner = PassRunner(engine, chat, owner, self._screen.step)
        self._warm_up()

    def _warm_up(self) -> None:
        """What is compiled or read on first use is no part of a pass, and what an arm costs is
        known before one begins. The prompt is as long as those of the sessions: catching up with
        it is part of that cost."""
        params = SamplingParams(max_tokens=WARM_UP_TOKENS)
        namespace = Owner(self._owner.tenant, "warm-up").name
        for drafter in (*self._engine.plan()["arms"], None):
            self._engine.generate(
                WARM_UP, params, namespace=namespace, drafter=drafter, store=False
            )

    def answer(self, question: object) -> object:
        if isinstance(question, PassPlan):
            return self._run(question)
        self._forget()
        return None

    def _run(self, plan: PassPlan) -> PassResult:
        known_tokens = self._caught_up(self._runner.namespace(plan))
        self._screen.heading(f"{plan.title} (process {os.getpid()})")
        result = self._runner.run(plan, known_tokens)
        if plan.teaches and not self._engine.store.log.flush(STORE_S):
            raise self._unavailable()
        return replace(result, process=os.getpid())

    def _caught_up(self, name: str) -> int:
        """Waits until all that the store holds of a namespace can be drafted from; its tokens."""
        store = self._engine.store
        index = store.indexes.live(store.namespace(name))
        is_read = store.indexes.flush(STORE_S) and store.indexes.ready_shared
        if not is_read or store.log.status().level is not LogLevel.SHARED:
            raise self._unavailable()
        return int(index.num_tokens)

    def _unavailable(self) -> StoreUnavailableError:
        status = self._engine.store.log.status()
        return StoreUnavailableError(
            f"the store at {status.where} does not answer: {status.last_error or 'no answer yet'}"
        )

    def _forget(self) -> None:
        store = self._engine.store
        keeper = StoreKeeper(store.plain_log, store.scopes, None)
        keeper.delete_all(Selection(self._owner.tenant))
