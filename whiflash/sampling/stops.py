"""When a turn ends: checked per emitted token, in order of position (design.md 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whiflash.core.params import SamplingParams
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import FinishReason
from whiflash.sampling.detokenizer import Detokenizer
from whiflash.sampling.processors import ending_ids
from whiflash.sampling.stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class Emission:
    """What becomes of the tokens of one round.

    num_kept: tokens that belong to the answer; those behind them are discarded everywhere.
    text: text to deliver now: nothing unfinished, nothing that may become a stop string.
    matched: the token id or the string that stopped the turn.
    """

    num_kept: int
    text: str
    finish_reason: FinishReason | None = None
    matched: str | int | None = None


class StopChecker:
    """Finish checks and text of one choice.

    For each token, in order: EOS or stop token, stop string, max_tokens, room. The first check
    that holds ends the turn at that token. A stop token gives no text; a stop string is cut from
    the text. A stop string counts if a token from number `min_tokens` on completes it.
    `max_room` is the number of generated tokens that the context limit leaves.
    """

    def __init__(
        self,
        params: SamplingParams,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
        max_room: int,
    ) -> None:
        self._ends = ending_ids(params, eos_ids)
        self._min_tokens = params.min_tokens
        self._max_tokens = min(params.max_tokens, max_room)
        self._detokenizer = Detokenizer(tokenizer)
        self._strings = StopStrings(params.stop)
        self._num_tokens = 0
        self._is_finished = False

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer so far."""
        return self._num_tokens

    def resume(self, token_ids: Sequence[int]) -> None:
        """Takes tokens that the client already has, before any `push`: they count and may begin a
        stop string, but do not end the turn. Their text is given again only as far as it was
        still withheld when they were delivered."""
        for token in token_ids:
            self._strings.feed(self._detokenizer.push(token), is_armed=False)
        self._num_tokens = len(token_ids)

    def push(self, token_ids: Sequence[int]) -> Emission:
        """Takes the tokens of one round. Raises ValueError once the turn has ended."""
        if self._is_finished:
            raise ValueError("the turn has ended; no token can follow")
        parts: list[str] = []
        for num_kept, token in enumerate(token_ids, start=1):
            reason, matched = self._take(token, parts)
            if reason is not None:
                self._is_finished = True
                return Emission(num_kept, "".join(parts), reason, matched)
        return Emission(len(token_ids), "".join(parts))

    def _take(self, token: int, parts: list[str]) -> tuple[FinishReason | None, str | int | None]:
        self._num_tokens += 1
        if token in self._ends:
            return FinishReason.STOP, self._close(parts) or token
        matched = self._show(self._detokenizer.push(token), parts)
        if matched is None and self._num_tokens >= self._max_tokens:
            matched = self._close(parts)
            return (FinishReason.LENGTH if matched is None else FinishReason.STOP), matched
        return (None if matched is None else FinishReason.STOP), matched

    def _show(self, text: str, parts: list[str]) -> str | None:
        released = self._strings.feed(text, self._num_tokens >= self._min_tokens)
        parts.append(released.text)
        return released.matched

    def _close(self, parts: list[str]) -> str | None:
        """Lets all withheld text out. The end of the text may itself complete a stop string."""
        matched = self._show(self._detokenizer.flush(), parts)
        parts.append(self._strings.flush())
        return matched

    def flush(self) -> str:
        """Withheld text of a turn that ends from outside (cancelled, deadline, error)."""
        parts: list[str] = []
        if not self._is_finished:
            self._is_finished = True
            self._close(parts)
        return "".join(parts)
