"""How a model wants its conversations written, and how to read what it writes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whiflash.chat.hermes import CALL_OPEN, THINK_CLOSE, THINK_OPEN, HermesParser
from whiflash.chat.history import Message, normal_messages
from whiflash.chat.messages import ParsedMessage
from whiflash.chat.source import TemplateSource, model_source, override_source, own_source
from whiflash.chat.template import ChatTemplate
from whiflash.core.constraint import Reasoning
from whiflash.core.errors import InvalidRequestError
from whiflash.core.results import FinishReason

_XML_CALL = "<function="


class ChatFormat:
    """A chat template and the parser that belongs to it. Immutable; share it freely.

    reads_calls: the model writes calls in the `hermes` format, the one that can be read.
    """

    def __init__(self, source: TemplateSource) -> None:
        self._template = ChatTemplate(source.text, source.where, source.values)
        self.reads_calls = CALL_OPEN in source.text and _XML_CALL not in source.text
        self.has_reasoning = THINK_CLOSE in source.text

    @classmethod
    def for_model(cls, folder: Path, name: str, override: Path | None = None) -> ChatFormat:
        """The format of the model whose tokenizer lies in `folder`: the template in `override`
        if given, our own for a built-in model that needs one, else the one in the folder.
        Raises ConfigError or ModelError if it cannot be read or does not compile."""
        if override is not None:
            return cls(override_source(folder, override))
        return cls(own_source(name) or model_source(folder, name))

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **values: Any,
    ) -> str:
        """The prompt text of OpenAI-shaped messages and tools; `values` reach the template
        (`enable_thinking`, ...). Raises InvalidRequestError if they cannot be written."""
        normal = normal_messages(messages)
        self._check_tools(normal, tools)
        return self._template.render(
            messages=normal,
            tools=[_tool(number, tool) for number, tool in enumerate(tools or ())] or None,
            add_generation_prompt=add_generation_prompt,
            **values,
        )

    def parser(self, prompt: str, has_calls: bool = True) -> HermesParser:
        """A parser for the text that follows `prompt`, which says whether reasoning is open.
        Without `has_calls` markers of calls are content."""
        reasoning = self.reasoning(prompt)
        return HermesParser(
            has_calls=has_calls and self.reads_calls,
            has_reasoning=reasoning is not Reasoning.NONE,
            in_reasoning=reasoning is Reasoning.OPEN,
        )

    @property
    def call_marker(self) -> str:
        """What an answer that calls a tool holds; "" where calls cannot be read."""
        return CALL_OPEN if self.reads_calls else ""

    def reasoning(self, prompt: str) -> Reasoning:
        """Whether the text that follows `prompt` begins with reasoning."""
        end = prompt.rstrip()
        if not self.has_reasoning or end.endswith(THINK_CLOSE):
            return Reasoning.NONE
        return Reasoning.OPEN if end.endswith(THINK_OPEN) else Reasoning.OPTIONAL

    def parse(self, prompt: str, text: str, reason: FinishReason) -> ParsedMessage:
        """What a whole generated text says."""
        parser = self.parser(prompt)
        parser.feed(text)
        parser.finish(reason)
        return parser.message()

    def _check_tools(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """A template that knows no tools drops them without a word."""
        has_calls = any(m.get("tool_calls") or m["role"] == "tool" for m in messages)
        if not tools and not has_calls:
            return
        if not self.reads_calls or "tools" not in self._template.variables:
            raise InvalidRequestError(
                f"{self._template.where} has no tool calls in the hermes format; "
                "give one with --chat-template, or leave the tools out",
                "tools",
            )


def _tool(number: int, tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(
            f'tool {number}: it must be {{"type": "function", "function": {{"name": ...}}}}',
            "tools",
        )
    return {"type": "function", **tool}
