"""What is done to a row of logits before the choice, in the order of docs/lossless.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from whiflash.core.errors import InvalidRequestError, NumericsError
from whiflash.core.params import SamplingParams
from whiflash.sampling.noise import FloatRow, IdArray
from whiflash.sampling.penalties import Penalties

BAN_BIAS = -100.0


def ending_ids(params: SamplingParams, eos_ids: Sequence[int]) -> frozenset[int]:
    """Ids that end the turn: the stop tokens, and EOS unless it is ignored."""
    return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else set(eos_ids))


def _id_array(ids: Sequence[int], vocab_size: int, param: str) -> IdArray:
    array = np.asarray(sorted(ids), np.int64)
    if len(array) and not (array[0] >= 0 and array[-1] < vocab_size):
        raise InvalidRequestError(
            f"{param} holds token id {array[-1] if array[0] >= 0 else array[0]}, "
            f"but the model has ids 0 to {vocab_size - 1}",
            param,
        )
    return array


class Processors:
    """Logit bias, penalties, min_tokens and grammar mask of one choice.

    A bias of -100 bans the id at every temperature. Temperature and filters come after this
    (`sampling.filters`). Raises InvalidRequestError if a parameter names an id beyond the model's.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        vocab_size: int,
        eos_ids: Sequence[int],
    ) -> None:
        bias_ids = _id_array(tuple(params.logit_bias), vocab_size, "logit_bias")
        _id_array(params.stop_token_ids, vocab_size, "stop_token_ids")
        bias = np.asarray([params.logit_bias[int(token)] for token in bias_ids], np.float64)
        is_banned = bias <= BAN_BIAS
        self._banned, self._bias_ids = bias_ids[is_banned], bias_ids[~is_banned]
        self._bias = bias[~is_banned]
        self._min_tokens = params.min_tokens
        known_ends = [token for token in ending_ids(params, eos_ids) if token < vocab_size]
        self._ends = np.asarray(sorted(known_ends), np.int64)
        has_penalty = (
            params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
        )
        self._penalties = Penalties(params, prompt_ids, vocab_size) if has_penalty else None

    @property
    def is_off(self) -> bool:
        """True where no row of this choice is ever changed, a grammar mask apart."""
        has_bias = len(self._banned) + len(self._bias_ids) > 0
        return not (has_bias or self._min_tokens or self._penalties)

    def apply(
        self, z: FloatRow, generated: Sequence[int], allowed: npt.NDArray[np.bool_] | None
    ) -> None:
        """Edits z (float64 [V]) in place for the row that follows `generated` (all generated ids
        up to this row, drafted ones included). Raises NumericsError on NaN or +inf."""
        with np.errstate(invalid="ignore"):
            if not z.sum() < np.inf:
                raise NumericsError("the target produced NaN or infinite logits")
        z[self._bias_ids] += self._bias
        if self._penalties is not None:
            self._penalties.apply(z, generated)
        z[self._banned] = -np.inf
        if len(generated) < self._min_tokens:
            z[self._ends] = -np.inf
        if allowed is not None:
            z[~allowed] = -np.inf

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""
        if self._penalties is not None:
            self._penalties.check_integrity()
