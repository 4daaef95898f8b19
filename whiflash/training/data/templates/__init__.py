"""Templates of training prompts by kind of text."""

from __future__ import annotations

from collections.abc import Mapping

from whiflash.training.data.filler import Template
from whiflash.training.data.templates import chat, code, edits, maths, structured, tool_loops

TEMPLATES: Mapping[str, tuple[Template, ...]] = {
    "chat": chat.TEMPLATES,
    "code": code.TEMPLATES,
    "maths": maths.TEMPLATES,
    "json": structured.TEMPLATES,
    "edit": edits.TEMPLATES,
    "tools": tool_loops.TEMPLATES,
}
