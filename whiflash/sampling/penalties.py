"""Repetition, presence and frequency penalties with counts that follow the generated ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whiflash.core.params import SamplingParams
from whiflash.sampling.noise import FloatRow, IdArray


class _IdSet:
    """Distinct ids as an array that grows at its end."""

    def __init__(self, capacity: int) -> None:
        self._ids = np.empty(capacity, np.int64)
        self._count = 0

    def add(self, token: int) -> None:
        self._ids[self._count] = token
        self._count += 1

    @property
    def ids(self) -> IdArray:
        return self._ids[: self._count]


class Penalties:
    """Penalties of one choice, applied on the prefix that each sampled row has.

    Repetition (CTRL, Keskar et al. 2019) sees prompt and generated ids: a positive logit is
    divided, a negative one multiplied by it. Presence and frequency (OpenAI) see generated ids
    only: each id that occurred loses presence + frequency * its count.
    Counts follow `generated`; a prefix that does not continue the last one is counted anew.
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], vocab_size: int) -> None:
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._vocab_size = vocab_size
        self._prompt_ids = np.unique(np.asarray(prompt_ids, np.int64))
        self._reset()

    def _reset(self) -> None:
        self._history: list[int] = []
        self._counts = np.zeros(self._vocab_size, np.int32)
        self._generated = _IdSet(self._vocab_size)
        self._seen = np.zeros(self._vocab_size, bool)
        self._repeated = _IdSet(self._vocab_size)
        for token in self._prompt_ids:
            self._mark_seen(int(token))

    def _mark_seen(self, token: int) -> None:
        if not self._seen[token]:
            self._seen[token] = True
            self._repeated.add(token)

    def _follow(self, generated: Sequence[int]) -> None:
        known = len(self._history)
        if list(generated[:known]) != self._history:
            self._reset()
            known = 0
        for token in generated[known:]:
            self._history.append(token)
            if self._counts[token] == 0:
                self._generated.add(token)
            self._counts[token] += 1
            self._mark_seen(token)

    def apply(self, z: FloatRow, generated: Sequence[int]) -> None:
        """Edits z (float64 [V]) in place for the row that follows `generated`."""
        self._follow(generated)
        if self._repetition != 1.0:
            ids = self._repeated.ids
            logits = z[ids]
            z[ids] = np.where(logits > 0, logits / self._repetition, logits * self._repetition)
        if self._presence != 0.0 or self._frequency != 0.0:
            ids = self._generated.ids
            z[ids] -= self._presence + self._frequency * self._counts[ids]

    def check_integrity(self) -> None:
        """Raises AssertionError if counts and history disagree."""
        fresh = np.bincount(np.asarray(self._history, np.int64), minlength=self._vocab_size)
        assert np.array_equal(fresh, self._counts), "counts differ from the history"
        assert set(self._generated.ids.tolist()) == set(self._history), "generated ids differ"
        expected = set(self._history) | set(self._prompt_ids.tolist())
        assert set(self._repeated.ids.tolist()) == expected, "repeated ids differ"
