"""The compiler: one compilation per demand, bounded in time, number and memory."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from whiflash.chat.constraints import compiler as module
from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.core.constraint import ConstraintSpec, JsonAnswer
from whiflash.core.errors import ConfigError, InvalidRequestError, QueueFullError

Make = Callable[..., GrammarCompiler]


@pytest.fixture
def make(toy_compiler: GrammarCompiler) -> Iterator[Make]:
    made: list[GrammarCompiler] = []

    def build(**options: float) -> GrammarCompiler:
        made.append(GrammarCompiler(toy_compiler._tokenizer, toy_compiler._info, **options))
        return made[-1]

    yield build
    for compiler in made:
        compiler.check_integrity()
        compiler.close()


def choice(*values: object) -> JsonAnswer:
    return JsonAnswer(json.dumps({"enum": list(values)}))


class Gate:
    """Holds compilations back until it is opened, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.count = 0
        original = module.structural_tag

        def held(spec: ConstraintSpec, param: str) -> str:
            self.count += 1
            assert self.opened.wait(30)
            return original(spec, param)

        monkeypatch.setattr(module, "structural_tag", held)


def test_a_demand_is_compiled_once_for_all_who_wait(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, compiler = Gate(monkeypatch), make()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(compiler.compile, choice(1, 2)) for _ in range(8)]
        gate.opened.set()
        grammars = {id(future.result()) for future in waiting}
    assert compiler.compile(choice(1, 2)) is not None
    assert len(grammars) == gate.count == 1


def test_grammars_are_forgotten_least_recently_used_first(make: Make) -> None:
    size = make().compile(choice(1)).num_bytes
    compiler = make(max_cache_bytes=2 * size + size // 2)
    first, second = (compiler.compile(choice(n)) for n in (1, 2))
    assert compiler.compile(choice(1)) is first
    compiler.compile(choice(3))
    assert compiler.compile(choice(1)) is first
    assert compiler.compile(choice(2)) is not second


def test_one_that_takes_too_long_is_refused_and_used_later(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, compiler = Gate(monkeypatch), make(compile_seconds=0.05)
    with pytest.raises(InvalidRequestError, match="not compiled within"):
        compiler.compile(choice(1))
    gate.opened.set()
    for _ in range(100):
        try:
            compiler.compile(choice(1))
            break
        except InvalidRequestError:
            continue
    assert gate.count == 1


def test_the_number_of_compilations_that_wait_is_bounded(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, compiler = Gate(monkeypatch), make(compile_seconds=0.0)
    for number in range(module.MAX_PENDING):
        with pytest.raises(InvalidRequestError):
            compiler.compile(choice(number))
    with pytest.raises(QueueFullError, match="try again later"):
        compiler.compile(choice(-1))
    gate.opened.set()


def test_failures_are_not_kept(make: Make) -> None:
    compiler = make()
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            compiler.compile(JsonAnswer('{"not": {}}'))
    compiler.check_integrity()


def test_a_model_without_an_end_has_no_constrained_answers(toy_compiler: GrammarCompiler) -> None:
    info = dataclasses.replace(toy_compiler._info, eos_ids=())
    compiler = GrammarCompiler(toy_compiler._tokenizer, info)
    with pytest.raises(InvalidRequestError, match="no end-of-text id"):
        compiler.compile(JsonAnswer())
    compiler.close()


def test_without_the_library_the_extra_is_named(
    toy_compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(ConfigError, match=r"pip install 'whiflash\[serve\]'"):
        GrammarCompiler(toy_compiler._tokenizer, toy_compiler._info)
