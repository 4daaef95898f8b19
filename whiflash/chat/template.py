"""A Jinja chat template, run in a sandbox: templates come with models and are not trusted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from whiflash.chat.history import ArgumentObject
from whiflash.core.errors import InvalidRequestError, ModelError


class ChatTemplate:
    """Text of a template, compiled once.

    where: what errors call it.
    values: what it sees beside the messages (special tokens, defaults).
    Raises ModelError if it does not compile.
    """

    def __init__(self, source: str, where: str, values: Mapping[str, Any]) -> None:
        self.source = source
        self.where = where
        self._values = dict(values)
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self.variables = meta.find_undeclared_variables(environment.parse(source))
        except TemplateSyntaxError as error:
            raise ModelError(
                f"{where} does not compile, line {error.lineno}: {_one_line(error)}; "
                "give another one with --chat-template"
            ) from None

    def render(self, **values: Any) -> str:
        """The prompt. Raises InvalidRequestError with the template's own complaint."""
        try:
            return self._template.render({**self._values, **values})
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise InvalidRequestError(
                f"{self.where} refuses these messages: {_one_line(error)}", "messages"
            ) from None


class _GenerationTag(Extension):
    """`{% generation %}`, with which some templates mark what the assistant writes."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 wants a plain set here

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Only the body counts."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    filters: dict[str, Callable[..., Any]] = environment.filters
    filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON without HTML escapes, as the models' templates expect it."""
    if isinstance(value, ArgumentObject):
        return value.text
    return json.dumps(value, **{"ensure_ascii": False, "indent": indent, **options})


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
