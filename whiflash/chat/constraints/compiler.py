"""From a demand on an answer's form to a grammar, bounded in time and memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from whiflash.chat.constraints.grammar import structural_tag
from whiflash.chat.constraints.library import grammar_library, library_reason
from whiflash.chat.constraints.state import CompiledGrammar
from whiflash.chat.constraints.vocabulary import grammar_vocabulary
from whiflash.core.constraint import ConstraintSpec, JsonAnswer
from whiflash.core.errors import InvalidRequestError, QueueFullError
from whiflash.core.protocols import TargetInfo
from whiflash.models.tokenizer import HFTokenizer

if TYPE_CHECKING:
    import xgrammar

MAX_CACHE_BYTES = 128 << 20
MAX_PENDING = 32
"""Grammars that are compiled or wait for it; more are refused."""

COMPILE_SECONDS = 10.0
"""How long a caller waits. A compilation cannot be stopped, so the ones behind it wait too."""


class GrammarCompiler:
    """`core.protocols.ConstraintCompiler` for one model.

    Grammars are kept, least recently used ones first to go. One thread of its own compiles, so
    that strangers' schemas never take more than one core. Raises ConfigError where the grammar
    library is not installed.
    """

    def __init__(
        self,
        tokenizer: HFTokenizer,
        info: TargetInfo,
        *,
        max_cache_bytes: int = MAX_CACHE_BYTES,
        compile_seconds: float = COMPILE_SECONDS,
    ) -> None:
        grammar_library()
        self._tokenizer = tokenizer
        self._info = info
        self._max_cache_bytes = max_cache_bytes
        self._compile_seconds = compile_seconds
        self._worker = ThreadPoolExecutor(1, "whiflash-grammar")
        self._lock = threading.RLock()  # a future that is done already settles at once
        self._known: OrderedDict[ConstraintSpec, CompiledGrammar] = OrderedDict()
        self._pending: dict[ConstraintSpec, Future[CompiledGrammar]] = {}

    def compile(self, spec: ConstraintSpec) -> CompiledGrammar:
        """Waits for the grammar. Raises InvalidRequestError naming `response_format` or `tools`
        where the demand cannot be honoured exactly or takes too long to compile, QueueFullError
        where too many are being compiled."""
        param = field_of(spec)
        with self._lock:
            if (known := self._known.get(spec)) is not None:
                self._known.move_to_end(spec)
                return known
            future = self._pending.get(spec) or self._begin(spec)
        try:
            return future.result(self._compile_seconds)
        except TimeoutError:
            raise InvalidRequestError(
                f"{param} was not compiled within {self._compile_seconds:g} s; "
                "make its schema simpler",
                param,
            ) from None

    def _begin(self, spec: ConstraintSpec) -> Future[CompiledGrammar]:
        """Under the lock."""
        if len(self._pending) >= MAX_PENDING:
            raise QueueFullError(f"{MAX_PENDING} grammars are being compiled; try again later")
        future = self._worker.submit(self._compile, spec)
        self._pending[spec] = future
        future.add_done_callback(lambda done: self._settle(spec, done))
        return future

    def _settle(self, spec: ConstraintSpec, done: Future[CompiledGrammar]) -> None:
        with self._lock:
            self._pending.pop(spec, None)
            if not done.cancelled() and done.exception() is None:
                self._known[spec] = done.result()
                self._evict()

    def _evict(self) -> None:
        held = sum(grammar.num_bytes for grammar in self._known.values())
        while held > self._max_cache_bytes and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            held -= oldest.num_bytes

    def _compile(self, spec: ConstraintSpec) -> CompiledGrammar:
        """On the worker's thread."""
        param = field_of(spec)
        if not self._info.eos_ids:
            raise InvalidRequestError(
                f"{param}: this model has no end-of-text id, so a constrained answer cannot end",
                param,
            )
        tag = structural_tag(spec, param)
        try:
            compiled = self._library_compiler.compile_structural_tag(tag)
        except (RuntimeError, ValueError) as error:
            raise InvalidRequestError(
                f"{param} cannot be compiled: {library_reason(error)}", param
            ) from None
        return CompiledGrammar(compiled, self._info.vocab_size)

    @cached_property
    def _library_compiler(self) -> xgrammar.GrammarCompiler:
        vocabulary = grammar_vocabulary(self._tokenizer, self._info.vocab_size, self._info.eos_ids)
        compiler: xgrammar.GrammarCompiler = grammar_library().GrammarCompiler(
            vocabulary, max_threads=1, cache_enabled=False
        )
        return compiler

    def close(self) -> None:
        """Waits for the grammar that is being compiled and drops the rest. Idempotent."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        with self._lock:
            assert len(self._pending) <= MAX_PENDING
            held = sum(grammar.num_bytes for grammar in self._known.values())
            assert held <= self._max_cache_bytes or len(self._known) == 1


def field_of(spec: ConstraintSpec) -> str:
    """The request field that callers know the demand by."""
    return "response_format" if isinstance(spec, JsonAnswer) else "tools"
