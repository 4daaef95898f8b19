"""What a request may ask of the text, and the request itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from whiflash.core.constraint import ConstraintSpec
from whiflash.core.errors import InvalidRequestError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
ALONE = "\0alone"
"""No namespace: a drafter that opens a request in it uses what the request itself holds."""

_NO_BIAS: Mapping[int, float] = MappingProxyType({})


def _require(ok: bool, param: str, rule: str, value: object) -> None:
    if not ok:
        raise InvalidRequestError(f"{param} must be {rule}, got {value!r}", param)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters of one generation; docs/lossless.md says what each one guarantees.

    temperature 0 is argmax (lowest id on ties). top_k 0 and top_p 1 and min_p 0 are off.
    seed None draws 128 random bits that are returned with the result. logprobs None is off, k >= 0
    returns the chosen token's raw log-probability and the k most likely.
    Raises InvalidRequestError on a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None

    def __post_init__(self) -> None:
        finite = math.isfinite
        _require(
            finite(self.temperature) and 0 <= self.temperature <= 100,
            "temperature",
            "between 0 and 100",
            self.temperature,
        )
        _require(self.top_k >= 0, "top_k", "0 (off) or a positive count", self.top_k)
        _require(0 < self.top_p <= 1, "top_p", "in (0, 1]", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p", "in [0, 1]", self.min_p)
        _require(
            finite(self.repetition_penalty) and self.repetition_penalty > 0,
            "repetition_penalty",
            "above 0",
            self.repetition_penalty,
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(finite(value) and -2 <= value <= 2, name, "between -2 and 2", value)
        _require(self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        _require(
            0 <= self.min_tokens <= self.max_tokens,
            "min_tokens",
            "between 0 and max_tokens",
            self.min_tokens,
        )
        _require(1 <= self.n <= 128, "n", "between 1 and 128", self.n)
        _require(
            self.seed is None or 0 <= self.seed < 2**128,
            "seed",
            "a non-negative integer below 2^128",
            self.seed,
        )
        _require(
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            "logprobs",
            f"between 0 and {MAX_LOGPROBS}",
            self.logprobs,
        )
        _require(
            len(self.stop) <= MAX_STOP_STRINGS and all(self.stop),
            "stop",
            f"at most {MAX_STOP_STRINGS} non-empty strings",
            self.stop,
        )
        for token, bias in self.logit_bias.items():
            _require(
                token >= 0 and finite(bias) and -100 <= bias <= 100,
                "logit_bias",
                "token ids mapped to numbers between -100 and 100",
                {token: bias},
            )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One API call: exact prompt ids, parameters, scope, and hints that cannot change the text.

    namespace:       scope of prefix reuse, trajectories and learned tables. Engine takes a plain
                     name and makes the namespace of it.
    run_id:          the agent run that the turn belongs to ("" for none).
    agent:           which agent or prompt template the run came from.
    subject:         whom the answer is about: a label of the stored turn, for deletion.
    prediction_ids:  text the caller expects, indexed for this request alone (a hint).
    drafter:         pin one arm by name, "none" for off; None lets the policy choose.
    max_draft:       most draft nodes a round; None is the engine's own limit.
    forced_ids:      tokens already delivered to the client (resume): fed as a prefix of the answer.
    store:           whether the finished turn may enter the trajectory store.
    shared_drafts:   whether drafts may come from the namespace's other turns; prefix reuse is
                     untouched.
    constraint:      the form that the answer must have; None for any.
    call_marker:     text of an answer that calls a tool: its KV is kept for the next turn for a
                     while; "" where no tools were offered.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    namespace: str = "local"
    run_id: str = ""
    prediction_ids: tuple[int, ...] = ()
    drafter: str | None = None
    max_draft: int | None = None
    forced_ids: tuple[int, ...] = ()
    store: bool = True
    deadline_s: float | None = None
    constraint: ConstraintSpec | None = None
    call_marker: str = ""
    agent: str = ""
    subject: str = ""
    shared_drafts: bool = True

    @property
    def draft_namespace(self) -> str:
        """Where drafters may look beyond the request."""
        return self.namespace if self.shared_drafts else ALONE
