"""What retrieval holds for one open sequence. It dies when the sequence is closed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whiflash.trajectories.index import Automaton, LiveIndex
from whiflash.trajectories.index.automaton import no_matches

Ids = npt.NDArray[np.int32]
REBUILD_AT = 1.5  # times the window
# So many prompt ids are put in front of a prediction, so that the start of the answer matches it.
PREDICTION_LEAD_TOKENS = 16


class ContextIndex:
    """The sequence's own context: its last `window_tokens` at least, half as many more at most."""

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._absorbed = 0
        self.automaton = Automaton()
        self.matches = no_matches(1)  # kernels want one; a context's match is its own state

    def absorb(self, context: Ids) -> bool:
        """Takes in what is new; False if the context does not extend the last one, in which case
        it is indexed afresh."""
        is_same = self._absorbed > 0 and self.automaton.absorb(context, self._absorbed)
        has_room = len(self.automaton) <= REBUILD_AT * self._window_tokens
        if not is_same or not has_room:
            window = context[-self._window_tokens :]
            self.automaton = Automaton(len(window) + 256)
            self.automaton.extend(window)
        self._absorbed = len(context)
        return is_same

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
    """All of one sequence: context, prediction, and its place in the namespace's live index."""

    def __init__(
        self, live: LiveIndex, prompt_ids: Ids, prediction_ids: Ids, window_tokens: int
    ) -> None:
        self.live = live
        self.reader = live.open_reader()
        self.context = ContextIndex(window_tokens)
        self.context.absorb(prompt_ids)
        self.prediction = (
            PredictionIndex(prompt_ids, prediction_ids, window_tokens)
            if len(prediction_ids)
            else None
        )
        self.matched = 0

    @property
    def num_bytes(self) -> int:
        predicted = 0 if self.prediction is None else self.prediction.automaton.num_bytes
        return self.context.automaton.num_bytes + predicted

    def close(self) -> None:
        self.live.close_reader(self.reader)

    def check_integrity(self) -> None:
        self.context.check_integrity()
        if self.prediction is not None:
            self.prediction.check_integrity()
