"""Requests as they come in: checked by name, then one sequence per choice."""

from __future__ import annotations

from whiflash.core.errors import InvalidRequestError
from whiflash.core.params import GenerationRequest
from whiflash.core.protocols import TargetInfo, Tokenizer
from whiflash.core.rows import NONE
from whiflash.engine.grammar import SequenceGrammar
from whiflash.engine.sequence import Sequence
from whiflash.engine.ticket import Ticket
from whiflash.sampling.noise import derive_key
from whiflash.sampling.sampler import SequenceSampler
from whiflash.sampling.stops import StopChecker


class Intake:
    """Knows what this engine can honour; what it cannot is refused, never ignored."""

    def __init__(self, info: TargetInfo, tokenizer: Tokenizer, arms: tuple[str, ...]) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._arms = (NONE, *arms)
        self._next_id = 0

    def check(self, request: GenerationRequest) -> None:
        """Raises InvalidRequestError naming the field that cannot be honoured."""
        if not request.prompt_ids:
            raise InvalidRequestError("the prompt is empty; give at least one token", "prompt")
        if not request.namespace:
            raise InvalidRequestError("the namespace is empty; name one", "namespace")
        if request.drafter is not None and request.drafter not in self._arms:
            raise InvalidRequestError(
                f"drafter {request.drafter!r} is not configured; choose one of: "
                f"{', '.join(self._arms)}",
                "drafter",
            )
        if request.max_draft is not None and request.max_draft < 0:
            raise InvalidRequestError("max_draft must be 0 or more", "max_draft")
        if request.constraint is not None and request.params.ignore_eos:
            raise InvalidRequestError(
                "ignore_eos and a constraint exclude each other: its grammar ends with EOS",
                "ignore_eos",
            )
        self._check_ids(request)

    def _check_ids(self, request: GenerationRequest) -> None:
        vocab = self._info.vocab_size
        named = {
            "prompt_ids": request.prompt_ids,
            "forced_ids": request.forced_ids,
            "prediction_ids": request.prediction_ids,
            "stop_token_ids": request.params.stop_token_ids,
            "logit_bias": tuple(request.params.logit_bias),
        }
        for name, ids in named.items():
            if ids and not (min(ids) >= 0 and max(ids) < vocab):
                raise InvalidRequestError(f"{name} must hold ids in 0..{vocab - 1}", name)
        if len(request.forced_ids) >= request.params.max_tokens:
            raise InvalidRequestError(
                "forced_ids leave no token to generate; raise max_tokens", "forced_ids"
            )

    def sequences(self, ticket: Ticket) -> list[Sequence]:
        """One waiting sequence per choice. Raises InvalidRequestError."""
        if ticket.request.constraint is not None and ticket.grammar is None:
            raise InvalidRequestError(
                "this engine was built without a constraint compiler; give it one (`constraints`)",
                "constraint",
            )
        return [self._sequence(ticket, index) for index in range(ticket.request.params.n)]

    def _sequence(self, ticket: Ticket, index: int) -> Sequence:
        request, info = ticket.request, self._info
        key = derive_key(ticket.seed, index, request.prompt_ids)
        sampler = SequenceSampler(
            request.params, key, request.prompt_ids, info.vocab_size, info.eos_ids
        )
        room = info.context_limit - len(request.prompt_ids)
        stops = StopChecker(request.params, self._tokenizer, info.eos_ids, room)
        stops.resume(request.forced_ids)
        grammar = None
        if ticket.grammar is not None:
            grammar = SequenceGrammar(ticket.grammar, request.forced_ids)
        self._next_id += 1
        return Sequence(self._next_id, request, index, ticket, sampler, stops, grammar)
