"""A call that offers tools tells the engine what a tool call looks like, so that its turn parks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from whiflash.chat.format import ChatFormat
from whiflash.core.params import GenerationRequest
from whiflash.core.results import FinishReason
from whiflash.serving.call import ChatPrompt, GenerationCall, Prompt, TextPrompt, ToolChoice
from whiflash.serving.caller import CallContext
from whiflash.serving.generation import GenerationService
from whiflash.testing.backends import ScriptedBackend

MESSAGES = ({"role": "user", "content": "hi"},)
TOOLS = ({"type": "function", "function": {"name": "clock", "parameters": {}}},)
CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def asked(
    context: CallContext, prompt: Prompt, choice: str = "auto", chat: ChatFormat | None = None
) -> GenerationRequest:
    """What reaches the engine."""
    backend = ScriptedBackend(CALL)
    backend.chat = chat or backend.chat

    async def run() -> None:
        call = GenerationCall(prompt, tool_choice=ToolChoice(choice))
        async for _ in GenerationService(backend).stream(call, context):
            pass

    asyncio.run(run())
    return backend.requests[0][0]


def test_a_call_with_tools_says_what_a_call_looks_like(
    context: Callable[..., CallContext],
) -> None:
    marker = asked(context(), ChatPrompt(MESSAGES, TOOLS)).call_marker
    assert marker
    assert marker in CALL


@pytest.mark.parametrize(
    ("prompt", "choice"),
    [
        (ChatPrompt(MESSAGES), "auto"),
        (ChatPrompt(MESSAGES, TOOLS), "none"),
        (TextPrompt("text"), "auto"),
    ],
)
def test_no_tools_no_hint(context: Callable[..., CallContext], prompt: Prompt, choice: str) -> None:
    assert asked(context(), prompt, choice).call_marker == ""


def test_the_marker_is_what_the_parser_reads(tmp_path: Path) -> None:
    """A format whose calls cannot be read has none: nobody would know the turn ended in one."""
    chat = ScriptedBackend().chat
    parser = chat.parser(chat.render(MESSAGES, TOOLS))
    parser.feed(chat.call_marker + CALL.partition(chat.call_marker)[2])
    parser.finish(FinishReason.STOP)
    assert [call.name for call in parser.message().calls] == ["clock"]
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert ChatFormat.for_model(tmp_path, "a-model").call_marker == ""
