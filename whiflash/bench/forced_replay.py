"""Drafting along recorded runs: the text is given, so no target model is needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final, Self, cast

import numpy as np

from whiflash.bench.draft_rules import LEARNED, DraftRule
from whiflash.bench.recordings import Ids, RecordedRun, RecordedTurn
from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback
from whiflash.drafters.retrieval import RetrievalDrafter
from whiflash.drafters.retrieval.request import ContextIndex
from whiflash.engine.feedback import matched_path
from whiflash.trajectories.index import LookupBatch, TrajectoryIndexes, layout
from whiflash.trajectories.index.lookup import Odds
from whiflash.trajectories.memory_log import MemoryLog
from whiflash.trajectories.record import TrajectoryRecord

INDEX_BYTES: Final = 2**30
WINDOW_TOKENS: Final = 65_536
FLUSH_S: Final = 60.0
_NO_IDS: Final = np.zeros(0, np.int32)
_SEQUENCE: Final = 1


@dataclass(frozen=True, slots=True)
class ReplaySetting:
    """has_context, has_store: which of the two may draft. num_silos: stores that the runs are
    spread over at random, each seeing its own alone. delay_runs: so many later runs do not see
    what a run taught."""

    has_context: bool = True
    has_store: bool = True
    num_silos: int = 1
    delay_runs: int = 0
    rule: DraftRule = LEARNED


@dataclass(slots=True)
class ReplayResult:
    """Sums over the runs that were measured. Rounds that ended a turn are counted apart."""

    num_rounds: int = 0
    num_tokens: int = 0
    num_ending_rounds: int = 0
    num_ending_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    accepted_by_source: dict[str, int] = field(default_factory=dict)

    @property
    def accepted_length(self) -> float:
        """Tokens per round that did not end a turn, the target's own included."""
        return self.num_tokens / max(self.num_rounds, 1)

    @property
    def tokens_per_round(self) -> float:
        """Over all rounds."""
        tokens = self.num_tokens + self.num_ending_tokens
        return tokens / max(self.num_rounds + self.num_ending_rounds, 1)

    @property
    def wasted(self) -> float:
        """Draft tokens that did not come true, per token of text."""
        tokens = self.num_tokens + self.num_ending_tokens
        return (self.num_drafted - self.num_accepted) / max(tokens, 1)

    @property
    def store_share(self) -> float:
        """Of the accepted draft tokens, those that came from other runs."""
        own = self.accepted_by_source.get(layout.SOURCE_NAMES[layout.CONTEXT], 0)
        return 1 - own / self.num_accepted if self.num_accepted else 0.0

    def note(self, tree: DraftTree, accepted: int, emitted: int, is_end: bool) -> None:
        """Counts one round."""
        self.num_drafted += len(tree)
        self.num_accepted += accepted
        if accepted:
            known = self.accepted_by_source
            known[tree.source] = known.get(tree.source, 0) + accepted
        if is_end:
            self.num_ending_rounds += 1
            self.num_ending_tokens += emitted
        else:
            self.num_rounds += 1
            self.num_tokens += emitted


class _HiddenContext:
    """Stands in for a sequence's own context: it is told to the store's lookup, never drafted
    from."""

    def begin_row(self, batch: LookupBatch, number: int, context: Ids, *_: Odds | float) -> None:
        known = context[-layout.MAX_MATCH_TOKENS :]
        batch.rows[number, layout.TOTAL] = len(context)
        batch.tails[number, layout.MAX_MATCH_TOKENS - len(known) :] = known


class _StoreDrafter(RetrievalDrafter):
    """Drafts from earlier runs alone."""

    def open(self, sequence_id: int, namespace: str, prompt_ids: Ids, prediction_ids: Ids) -> None:
        super().open(sequence_id, namespace, prompt_ids[:0], prediction_ids[:0])
        self._requests[sequence_id].context = cast(ContextIndex, _HiddenContext())


class ForcedReplay:
    """One setting at work. Not for several threads; close it, or use it as a context manager."""

    def __init__(self, setting: ReplaySetting, seed: int = 0) -> None:
        self._setting = setting
        self._log = MemoryLog()
        self._indexes = TrajectoryIndexes(self._log, INDEX_BYTES)
        kind = RetrievalDrafter if setting.has_context else _StoreDrafter
        self._drafter = kind(self._indexes, WINDOW_TOKENS, setting.rule.min_survival)
        self._random = Random(seed)
        self._pending: deque[tuple[str, RecordedRun]] = deque()
        self.result = ReplayResult()

    def warm(self, runs: Iterable[RecordedRun]) -> None:
        """Puts runs into the store without measuring them."""
        for run in runs:
            self._teach(self._silo(), run)

    def measure(self, runs: Sequence[RecordedRun]) -> ReplayResult:
        """Drafts along each run, which afterwards enters the store."""
        for run in runs:
            silo = self._silo()
            assert self._indexes.flush(FLUSH_S), "the index did not keep up"
            self._follow(silo, run)
            self._teach(silo, run)
        return self.result

    def _silo(self) -> str:
        return f"silo-{self._random.randrange(self._setting.num_silos)}"

    def _teach(self, silo: str, run: RecordedRun) -> None:
        if not self._setting.has_store:
            return
        self._pending.append((silo, run))
        while len(self._pending) > self._setting.delay_runs:
            namespace, known = self._pending.popleft()
            self._indexes.live(namespace)
            for turn in known.turns:
                self._log.append(TrajectoryRecord(namespace, known.run_id, turn.target))

    def _follow(self, silo: str, run: RecordedRun) -> None:
        """A turn's first token is the prefill's; then rounds, each with a draft."""
        text = np.empty(run.num_tokens, np.int32)
        length = 0
        for number, turn in enumerate(run.turns):
            length = _put(text, 0 if turn.is_fork else length, turn.new_context)
            if number == 0:
                self._drafter.open(_SEQUENCE, silo, text[:length], _NO_IDS)
            length = _put(text, length, turn.target[:1])
            done = 1
            while done < len(turn.target):
                emitted = self._round(silo, text[:length], turn, done)
                length = _put(text, length, turn.target[done : done + emitted])
                done += emitted
        self._drafter.close(_SEQUENCE)

    def _round(self, silo: str, context: Ids, turn: RecordedTurn, done: int) -> int:
        rule = self._setting.rule
        row = DraftRow(_SEQUENCE, silo, context, rule.asked_nodes, rule.max_depth)
        (proposed,) = self._drafter.propose([row])
        tree = rule.cut(proposed, self._drafter.matched(_SEQUENCE))
        followed = tuple(turn.target[done : done + rule.max_depth + 1].tolist())
        accepted, _ = matched_path(tree, followed)
        is_end = done + accepted + 1 >= len(turn.target)
        emitted = min(accepted + 1, len(turn.target) - done)
        self.result.note(tree, accepted, emitted, is_end)
        if rule.learns:
            self._drafter.learn([Feedback(row, proposed, followed, True)])
        return emitted

    def close(self) -> None:
        """Idempotent."""
        self._indexes.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _put(text: Ids, length: int, ids: Ids) -> int:
    """Writes `ids` behind the first `length`; the length then."""
    text[length : length + len(ids)] = ids
    return length + len(ids)
