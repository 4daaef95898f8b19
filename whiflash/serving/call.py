"""One generation call, the same record for gRPC, HTTP and Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whiflash.core.params import SamplingParams

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """OpenAI-shaped messages and tools, written out by the model's chat template.
    `template_values` reach the template (`enable_thinking`, ...)."""

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    template_values: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text that goes to the model as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Exact ids."""

    token_ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`none`, `auto`, `required`, or `named` with the tool's name. `is_parallel` False allows
    one call at most."""

    mode: str = "auto"
    name: str = ""
    is_parallel: bool = True


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The answer must be JSON: any object (`schema` None), or one that the schema describes."""

    schema: Json | None = None


@dataclass(frozen=True, slots=True)
class GenerationCall:
    """What a client asks for.

    model:           the name it was asked under; "" for whichever is served.
    params:          sampling; its max_tokens counts only where `max_tokens` here is not None.
    max_tokens:      None lets the answer run to the context limit.
    json_format:     structured output, excludes calls by choice `required` and `named`.
    prediction:      expected text (a hint to retrieval, cannot change the answer).
    drafter:         pin one arm, "none" for off; None lets the policy choose.
    run_id, agent:   the agent run, and the agent or template behind it; "" for none.
    subject:         end user: narrows the scope inside the caller's project, never widens it.
    store:           whether the turn may enter the trajectory store.
    shared_drafts:   whether drafts may come from other requests' trajectories.
    forced_ids:      ids of choice 0 already delivered (resume); needs `seed` and n = 1.
    idempotency_key: a second call with the same key joins the first one's result.
    """

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    model: str = ""
    max_tokens: int | None = None
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    json_format: JsonFormat | None = None
    prediction: str = ""
    drafter: str | None = None
    max_draft: int | None = None
    run_id: str = ""
    agent: str = ""
    subject: str = ""
    store: bool = True
    shared_drafts: bool = True
    forced_ids: tuple[int, ...] = ()
    idempotency_key: str = ""
