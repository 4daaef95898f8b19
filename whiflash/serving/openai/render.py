"""Renders docs/api.md from the rules beside the fields of the bodies.

`python -m whiflash.serving.openai.render` writes it, with `--check` it only compares (exit 1 on a
difference). Nothing in it is typed by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from whiflash.serving.errors import STATUSES
from whiflash.serving.openai.chat_body import ChatBody
from whiflash.serving.openai.common_body import Extension, StreamOptions
from whiflash.serving.openai.completion_body import CompletionBody, TokenizeBody
from whiflash.serving.openai.problems import BODY_CODES, ROUTE_ERRORS
from whiflash.serving.openai.rules import Body, Honoured, NoEffect, Refused, Rule, rules_of

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
_INTRO = """# HTTP interface

Rendered from the code by `make fix`; do not edit.
An OpenAI client works as it is: point its base URL at `http://127.0.0.1:8000/v1`.
Three rules hold for every request:

1. What is **honoured** does exactly what stands beside it; docs/lossless.md has the guarantees.
2. What is **accepted without effect** cannot change the text.
3. All else is **refused** with status 400 and its name in `error.param`: fields that would change
   the text and are not honoured, and every name that is not listed. Nothing is ignored in silence.

| path | what it does | key |
|---|---|---|
| `POST /v1/chat/completions` | an answer to a chat | scope `generate` |
| `POST /v1/completions` | the continuation of a text or of token ids | scope `generate` |
| `GET /v1/models`, `GET /v1/models/ID` | the served model | any |
| `POST /tokenize` | `tokens`, `count`, `max_model_len` of a text or a chat | scope `generate` |
| `GET /health` | 200 while the process answers; model and arms | none |
| `GET /ready` | 200 where new calls are welcome, 503 before the warm-up and while draining | none |
| `GET /metrics` | Prometheus | scope `debug` |

A server without keys has one caller with all scopes, whatever key a client sends.

## Headers

| header | meaning |
|---|---|
| `Authorization: Bearer KEY` | who calls |
| `Idempotency-Key` | a second request with the same key and body joins the first one's answer |
| `X-Request-Id` | yours if it is 1 to 128 letters, digits and `._:-`, else a new one |
| `traceparent` | the W3C trace that the call belongs to |
"""
_ANSWERS = """## Answers

- Streams are server-sent events as OpenAI's: a chunk with the role for each choice, deltas, a
  chunk with `finish_reason`, the usage chunk if asked for, `data: [DONE]`. While a call waits for
  its turn, comments (`: queued for 5 s`) keep the connection awake. An error after the first
  chunk is a last event `data: {"error": ...}` without `[DONE]`.
- A streamed answer adds up to the answer that is not streamed.
- A tool call streams its index, id and name first, then its arguments, character for character as
  the model wrote them. A call that no grammar forces is sent when it is complete; what turns out
  not to be a call is content.
- `finish_reason` is `length` where `max_tokens` or the context limit ended the text, also behind
  complete calls, which the message holds all the same; else `tool_calls` after at least one
  complete call; else `stop`.
- Reasoning comes as `reasoning_content`, and may be sent back under that name.
- Log-probabilities are the raw model's, an entry for each generated token, a stop token included.
- `usage.prompt_tokens_details.cached_tokens` is exact. `completion_tokens_details` has the
  `prediction`'s accepted tokens (those that the answer holds in the same order) and rejected ones
  (the rest); rejected ones are not part of `completion_tokens`.
- `whiflash.seed` repeats the answer when it is sent as `seed`. Keys with scope `debug` also get
  `drafted`, `accepted` and `arms`: rounds and tokens by drafter; `accepted` leaves out the round
  that ended the turn.
- A client that closes the connection cancels its request within one step. One that stops reading
  holds up nobody and is dropped after a minute.
"""
_ERRORS = """## Errors

`{"error": {"message", "type", "param", "code"}}`. `Retry-After` comes with those that may pass.

| status | type | code |
|---|---|---|"""
_EDGE_ERRORS = {(413, "request_too_large"), (415, ""), (404, "model_not_found")}
"""Statuses and codes beside those of bodies, of paths and of the table of errors."""


def render_page() -> str:
    """The whole page."""
    parts = [
        _INTRO,
        *_body("/v1/chat/completions", ChatBody),
        *_body("/v1/completions", CompletionBody),
        *_body("/tokenize", TokenizeBody),
        *_body("The field `whiflash`", Extension),
        *_body("The field `stream_options`", StreamOptions),
        _ANSWERS,
        _ERRORS,
    ]
    return "\n".join([*parts, *_errors()]) + "\n"


def _body(title: str, kind: type[Body]) -> Iterator[str]:
    rules = rules_of(kind)
    yield f"## {title}\n"
    yield from _list("Honoured", kind, rules, Honoured)
    yield from _list("Accepted without effect", kind, rules, NoEffect)
    yield from _list("Refused", kind, rules, Refused)


def _list(title: str, kind: type[Body], rules: dict[str, Rule], mark: type[Rule]) -> Iterator[str]:
    chosen = {name: rule for name, rule in rules.items() if isinstance(rule, mark)}
    if not chosen:
        return
    yield f"**{title}**\n"
    yield "| field | default | what it does |"
    yield "|---|---|---|"
    for name, rule in sorted(chosen.items()):
        yield f"| `{name}` | {_default(kind, name)} | {_text(rule)} |"
    yield ""


def _default(kind: type[Body], name: str) -> str:
    field = kind.model_fields[name]
    return "required" if field.is_required() else f"`{json.dumps(field.default)}`"


def _text(rule: Rule) -> str:
    if not isinstance(rule, Refused):
        return rule.text
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in (None, *rule.neutral))
    return f"{rule.why}; only {neutral}"


def _errors() -> Iterator[str]:
    rows = {(status.http, status.type, status.code or "") for _, status in STATUSES}
    asked = _EDGE_ERRORS | {(400, code) for code in BODY_CODES}
    asked |= {(status, code or "") for status, (_, code) in ROUTE_ERRORS.items()}
    rows |= {(status, "invalid_request_error", code) for status, code in asked}
    for http, kind, code in sorted(rows):
        yield f"| {http} | `{kind}` | {f'`{code}`' if code else '-'} |"


def main(arguments: Sequence[str]) -> int:
    """0 if the page is as rendered (or was written), 1 if `--check` finds a difference."""
    wanted = render_page()
    is_stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted
    if is_stale and "--check" in arguments:
        sys.stderr.write("docs/api.md differs from the code; run: make fix\n")
        return 1
    if is_stale:
        PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
