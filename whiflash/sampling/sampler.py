"""The target's token at one row: y = argmax over allowed ids of z + T * g (design.md 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from whiflash.core.errors import InvalidRequestError, NumericsError
from whiflash.core.params import SamplingParams
from whiflash.core.results import TokenLogprob
from whiflash.sampling.choose import block_maxima, choose
from whiflash.sampling.filters import Filters, ranked_ids, total_weight
from whiflash.sampling.noise import FloatRow, NoiseKey
from whiflash.sampling.processors import Processors

if TYPE_CHECKING:
    import torch

Mask = npt.NDArray[np.bool_]


def greedy_tokens(logits: torch.Tensor) -> list[int]:
    """Argmax of each row of [R, V], lowest id on ties, for rows that are `is_plain_greedy`.

    Raises NumericsError if the largest logit of a row is not finite (NaN counts as largest).
    """
    rows = logits.detach().cpu()
    wide = rows if rows.dtype.itemsize == 8 else rows.float()
    values = wide.numpy()
    best = np.argmax(values, axis=-1)
    if not np.isfinite(np.take_along_axis(values, best[:, None], axis=-1)).all():
        raise NumericsError("the target produced NaN or infinite logits")
    return [int(token) for token in best]


def _float64_row(logits_row: torch.Tensor) -> FloatRow:
    """An own float64 copy of one row."""
    row: FloatRow = logits_row.detach().cpu().double().numpy()
    return row.copy() if logits_row.dtype.itemsize == 8 else row


def _checked_maxima(z: FloatRow) -> FloatRow:
    maxima = block_maxima(z)
    peak = float(maxima.max())
    if math.isfinite(peak):
        return maxima
    if peak == -math.inf:
        raise InvalidRequestError(
            "no token id is left to choose from: logit_bias, min_tokens or the grammar exclude all"
        )
    raise NumericsError("the target produced NaN or infinite logits")


class SequenceSampler:
    """Chooses the tokens of one choice of one request.

    The token of a row is a pure function of (logits row, generated ids up to the row, mask, key):
    which drafter proposed it, or whether one did, does not enter.
    params.seed and params.n are the caller's business: they go into `key`.
    """

    def __init__(
        self,
        params: SamplingParams,
        key: NoiseKey,
        prompt_ids: Sequence[int],
        vocab_size: int,
        eos_ids: Sequence[int],
    ) -> None:
        self.key = key
        self._vocab_size = vocab_size
        self._temperature = params.temperature
        self._filters = Filters.of(params)
        self._processors = Processors(params, prompt_ids, vocab_size, eos_ids)

    @property
    def is_plain_greedy(self) -> bool:
        """True where `sample` without a mask is a plain argmax (see `greedy_tokens`)."""
        return self._temperature == 0 and self._processors.is_off

    def sample(
        self, logits_row: torch.Tensor, generated: Sequence[int], allowed: Mask | None = None
    ) -> int:
        """The target's token behind `generated`: all ids generated up to this row, those of a
        draft's path included; their number is the index of the noise.

        logits_row: [V] raw logits; allowed: bool [V] grammar mask. Raises NumericsError on NaN,
        InvalidRequestError if nothing is left to choose from.
        """
        if logits_row.shape != (self._vocab_size,):
            raise ValueError(f"expected [{self._vocab_size}] logits, got {tuple(logits_row.shape)}")
        if self.is_plain_greedy and allowed is None:
            return greedy_tokens(logits_row[None])[0]
        z = _float64_row(logits_row)
        if allowed is not None or not self._processors.is_off:
            self._processors.apply(z, generated, allowed)
        maxima = _checked_maxima(z)
        if self._temperature == 0:
            return int(np.argmax(z))
        index = len(generated)
        if self._filters.is_off:
            return choose(z, maxima, self._temperature, self.key, index)
        return self._filters.choose(z, maxima, self.key, index)

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        self._processors.check_integrity()


def token_logprob(logits_row: torch.Tensor, token: int, num_top: int) -> TokenLogprob:
    """Raw log-probability of `token` and of the `num_top` most likely ids (ties: lowest id first).

    logits_row: [V] as the model gave them; processors and temperature do not enter. Computed in
    float64. Raises NumericsError on NaN.
    """
    z = _float64_row(logits_row)
    maxima = block_maxima(z)
    peak = float(maxima.max())
    if not math.isfinite(peak):
        raise NumericsError("the target produced NaN or infinite logits")
    offset = peak + math.log(total_weight(z, maxima, peak, 1.0))
    top = ranked_ids(z, maxima, max(num_top, 1))[:num_top]
    pairs = tuple((int(i), float(z[i]) - offset) for i in top)
    return TokenLogprob(int(token), float(z[token]) - offset, pairs)
