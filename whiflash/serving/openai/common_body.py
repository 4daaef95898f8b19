"""Fields that chat and text completions share."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from whiflash.core.params import MAX_STOP_STRINGS
from whiflash.serving.openai.rules import Body, Honoured, NoEffect, Refused, bad_field

MAX_SEED = 2**128 - 1
MIN_SEED = -(2**63)
_NO_SEARCH = "the answer is sampled from the model itself; leave it out"

Text = Annotated[str, Field(max_length=256)]
Stop = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)]
Seed = (
    Annotated[int, Field(ge=MIN_SEED, le=MAX_SEED)] | Annotated[str, Field(pattern=r"^\d{1,39}$")]
)


class StreamOptions(Body):
    """What a stream tells beside the text."""

    include_usage: Annotated[
        bool | None, Honoured("a last chunk with `usage` and no choices; the others have it null")
    ] = None
    include_obfuscation: Annotated[
        bool | None, NoEffect("chunks are never padded; their sizes follow the text")
    ] = None


class Extension(Body):
    """The field `whiflash`: what only this server has."""

    drafter: Annotated[
        Text | None,
        Honoured("pins one arm by name, `none` for plain decoding; null lets the policy choose"),
    ] = None
    max_draft: Annotated[
        int | None, Field(ge=1), Honoured("most draft nodes in a round; null for the server's own")
    ] = None
    no_store: Annotated[bool, Honoured("true keeps the turn out of the trajectory store")] = False
    no_shared_drafts: Annotated[
        bool, Honoured("true takes no drafts from other requests' trajectories")
    ] = False
    timeout_ms: Annotated[
        int | None,
        Field(ge=1, le=86_400_000),
        Honoured("the answer is of no use after so long: the request ends with a 504 then"),
    ] = None
    run_id: Annotated[Text, Honoured("the agent run that the turn belongs to")] = ""
    agent: Annotated[Text, Honoured("the agent or template behind the run")] = ""


class CommonBody(Body):
    """Model, sampling, streaming and what is accepted or refused in both endpoints."""

    model: Annotated[str, Honoured("must name the served model; another one is a 404")]
    stream: Annotated[
        bool | None, Honoured("server-sent events, ended by `data: [DONE]`; null is false")
    ] = None
    stream_options: Annotated[StreamOptions | None, Honoured("only with `stream`")] = None
    temperature: Annotated[
        float | None, Honoured("0 to 100, null is 1; 0 is the most likely token, lowest id on ties")
    ] = None
    top_p: Annotated[float | None, Honoured("above 0 up to 1, null is 1 (off)")] = None
    top_k: Annotated[
        int | None, Field(ge=-1), Honoured("keeps the k most likely tokens; -1, 0 and null are off")
    ] = None
    min_p: Annotated[
        float | None, Honoured("0 to 1: least share of the best token's probability; null is off")
    ] = None
    presence_penalty: Annotated[float | None, Honoured("-2 to 2, null is 0 (off)")] = None
    frequency_penalty: Annotated[float | None, Honoured("-2 to 2, null is 0 (off)")] = None
    repetition_penalty: Annotated[float | None, Honoured("above 0, null is 1 (off)")] = None
    logit_bias: Annotated[
        dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], float] | None,
        Honoured("token ids (as text) mapped to -100 to 100, added before everything else"),
    ] = None
    n: Annotated[
        int | None, Field(ge=1, le=128), Honoured("1 to 128 independent choices of one prompt")
    ] = None
    seed: Annotated[
        Seed | None,
        Honoured(
            "any integer from -2^63 to 2^128 - 1, or its decimal digits as text: the same seed, "
            "prompt and parameters give the same text; null draws one, told in `whiflash.seed`"
        ),
    ] = None
    stop: Annotated[
        Stop | None, Honoured("up to 16 strings; the first that appears ends the text before it")
    ] = None
    stop_token_ids: Annotated[
        list[Annotated[int, Field(ge=0)]] | None,
        Field(max_length=64),
        Honoured("up to 64 token ids that end the text"),
    ] = None
    ignore_eos: Annotated[
        bool | None, Honoured("true goes on behind the model's own end of text")
    ] = None
    min_tokens: Annotated[
        int | None, Field(ge=0), Honoured("no end of text before this many tokens; null is 0")
    ] = None
    user: Annotated[
        Text | None,
        Honoured("end user: narrows which trajectories and prefixes may be reused, never the text"),
    ] = None
    whiflash: Annotated[Extension | None, Honoured("see below")] = None

    best_of: Annotated[object, Refused(_NO_SEARCH, neutral=(1,))] = None
    use_beam_search: Annotated[object, Refused(_NO_SEARCH, neutral=(False,))] = None
    length_penalty: Annotated[object, Refused(_NO_SEARCH, neutral=(1,))] = None

    @model_validator(mode="after")
    def _check_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise bad_field("stream_options", "stream_options needs stream: true")
        return self
