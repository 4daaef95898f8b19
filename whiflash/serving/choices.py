"""One choice of a running call: what the engine reports becomes what a front end shows."""

from __future__ import annotations

from dataclasses import dataclass

from whiflash.chat.hermes import HermesParser
from whiflash.core.errors import DeadlineExceededError, EngineClosedError, NumericsError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import Tokenizer
from whiflash.core.results import Completion, Delta, FinishReason
from whiflash.core.usage import Usage
from whiflash.sampling.stops import StopChecker
from whiflash.serving.backend import ServedModel
from whiflash.serving.prediction import count_prediction
from whiflash.serving.stream import Ended, Piece


class ChoiceStream:
    """Parser and prediction of one choice. `delivered` is text that the client already has."""

    def __init__(
        self, parser: HermesParser | None, prediction_ids: tuple[int, ...], delivered: str = ""
    ) -> None:
        self._parser = parser
        self._prediction_ids = prediction_ids
        if parser is not None and delivered:
            parser.feed(delivered)

    def piece(self, delta: Delta) -> Piece:
        """What a round added."""
        events = self._parser.feed(delta.text) if self._parser is not None else []
        return Piece(
            delta.index, delta.token_ids, delta.text, tuple(events), delta.arm, delta.accepted,
            delta.logprobs,
        )  # fmt: skip

    async def ended(self, completion: Completion) -> Ended:
        """Raises what an end from outside means for the call."""
        _check_end(completion)
        accepted, rejected = 0, 0
        if self._prediction_ids:
            accepted, rejected = await count_prediction(self._prediction_ids, completion.token_ids)
        if self._parser is None:
            return Ended(completion.index, completion, (), None, accepted, rejected)
        events = tuple(self._parser.finish(completion.finish_reason))
        return Ended(
            completion.index, completion, events, self._parser.message(), accepted, rejected
        )


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the client of a resumed call has: the text that went out with `forced_ids` (without
    what was withheld: an unfinished character, the possible start of a stop string), and the end
    if the answer was complete already and only that word was lost."""

    text: str = ""
    end: Completion | None = None

    @classmethod
    def of(
        cls, request: GenerationRequest, model: ServedModel, tokenizer: Tokenizer, seed: int
    ) -> Delivered:
        """Runs the finish checks over the forced ids, as the engine did."""
        if not request.forced_ids:
            return cls()
        room = model.context_limit - len(request.prompt_ids)
        stops, text = StopChecker(request.params, tokenizer, model.eos_ids, room), ""
        for number, token in enumerate(request.forced_ids, start=1):
            emission = stops.push((token,))
            text += emission.text
            if emission.finish_reason is not None:
                end = Completion(
                    0, "", request.forced_ids[:number], emission.finish_reason,
                    Usage(prompt_tokens=len(request.prompt_ids)), seed,
                    matched_stop=emission.matched,
                )  # fmt: skip
                return cls(text, end)
        return cls(text)


def _check_end(completion: Completion) -> None:
    match completion.finish_reason:
        case FinishReason.DEADLINE:
            raise DeadlineExceededError("the deadline passed before the answer was complete")
        case FinishReason.ERROR:
            raise NumericsError(completion.error or "the answer could not be computed")
        case FinishReason.CANCELLED:
            raise EngineClosedError("the engine ended the request; try again")
