"""What retrieval holds for one open sequence. It dies when the sequence is closed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.core.params import ALONE
from whiflash.drafters.retrieval.odds import LearnedOdds
from whiflash.trajectories.index import Automaton, LookupBatch, NamespaceIndex, layout
from whiflash.trajectories.index.automaton import no_matches
from whiflash.trajectories.index.lookup import Odds

Ids = npt.NDArray[np.int32]
SPARE_TOKENS = 256
REBUILD_AT = 1.5  # times the window
# So many prompt ids are put in front of a prediction, so that the start of the answer matches it.
PREDICTION_LEAD_TOKENS = 16


class ContextIndex:
    """The sequence's own context: its last `window_tokens` at least, half as many more at most."""

    def __init__(self, context: Ids, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self.num_rebuilt = -1
        self._num_forks = 0
        self._rebuild(context)

    def _rebuild(self, context: Ids) -> None:
        window = context[-self._window_tokens :]
        self.automaton = Automaton(len(window) + SPARE_TOKENS)
        self.automaton.extend(window)
        self._absorbed = len(context)
        self.num_rebuilt += 1

    def begin_row(
        self, batch: LookupBatch, number: int, context: Ids, odds: Odds, min_survival: float
    ) -> None:
        """Drafts from the context, new tokens taken in. One that does not extend the last one is
        indexed afresh; `batch.rows` says how many did not."""
        num_new = len(context) - self._absorbed
        if len(self.automaton) + num_new > REBUILD_AT * self._window_tokens:
            self._rebuild(context)
        if not self.automaton.begin_row(batch, number, context, self._absorbed, odds, min_survival):
            self._rebuild(context)
            self._num_forks += 1
            self.automaton.begin_row(batch, number, context, self._absorbed, odds, min_survival)
        batch.rows[number, layout.FORKS] = self._num_forks
        self._absorbed = len(context)

    def check_integrity(self) -> None:
        self.automaton.check_integrity()
        assert len(self.automaton) <= min(self._absorbed, REBUILD_AT * self._window_tokens)


class PredictionIndex:
    """The text that the caller expects, for one request alone."""

    def __init__(self, prompt_ids: Ids, prediction_ids: Ids, window_tokens: int) -> None:
        lead = prompt_ids[max(len(prompt_ids) - PREDICTION_LEAD_TOKENS, 0) :]
        ids = np.concatenate([lead, prediction_ids[:window_tokens]]).astype(np.int32)
        self.automaton = Automaton(len(ids))
        self.automaton.extend(ids)
        self.automaton.end_run()
        self.automaton.take_room(self.automaton.trimmed())
        self.matches = no_matches(1)

    def check_integrity(self) -> None:
        self.automaton.check_integrity()


class OpenRequest:
    """All of one sequence: context, prediction, its place in the index of the namespace's earlier
    runs (None: it drafts alone), and the odds to draft by."""

    def __init__(
        self,
        live: NamespaceIndex | None,
        odds: LearnedOdds,
        prompt_ids: Ids,
        prediction_ids: Ids,
        window_tokens: int,
    ) -> None:
        self.live = live
        self.reader = 0 if live is None else live.open_reader()
        self.odds = odds
        self.context = ContextIndex(prompt_ids, window_tokens)
        self.prediction = (
            PredictionIndex(prompt_ids, prediction_ids, window_tokens)
            if len(prediction_ids)
            else None
        )
        self.matched = 0

    def look_at_own(
        self, batch: LookupBatch, place: int, context: Ids, min_survival: float
    ) -> None:
        """Drafts from context and prediction."""
        odds = self.odds.odds
        self.context.begin_row(batch, place, context, odds, min_survival)
        if self.prediction is not None:
            self.prediction.automaton.lookup(
                batch, self.prediction.matches, place, place + 1, layout.PREDICTION, odds,
                min_survival,
            )  # fmt: skip

    @property
    def namespace(self) -> str:
        """Whose earlier runs it drafts from."""
        return ALONE if self.live is None else self.live.namespace

    @property
    def num_bytes(self) -> int:
        predicted = 0 if self.prediction is None else self.prediction.automaton.num_bytes
        return self.context.automaton.num_bytes + predicted

    def close(self) -> None:
        if self.live is not None:
            self.live.close_reader(self.reader)

    def check_integrity(self) -> None:
        self.context.check_integrity()
        if self.prediction is not None:
            self.prediction.check_integrity()
