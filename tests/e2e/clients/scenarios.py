"""What unmodified clients do against a server: tool loops and structured answers, streamed and not.

Each scenario takes the base URL and a function that it calls after each user turn. The requests
that they send are recorded by `python tests/e2e/clients/record.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client_setting import MODEL, Scenario, reset
from langchain_scenarios import langchain_structured, langchain_tools, langchain_tools_streamed
from openai_scenarios import (
    openai_everything,
    openai_forced,
    openai_structured,
    openai_tools,
    openai_tools_streamed,
)
from pydantic_ai_scenarios import (
    pydantic_structured,
    pydantic_tools,
    pydantic_tools_streamed,
)

__all__ = ["MODEL", "OTHERS", "TOOL_LOOPS", "reset"]

TOOL_LOOPS: dict[str, Scenario] = {
    "openai_tools": openai_tools,
    "openai_tools_streamed": openai_tools_streamed,
    "pydantic_ai_tools": pydantic_tools,
    "pydantic_ai_tools_streamed": pydantic_tools_streamed,
    "langchain_tools": langchain_tools,
    "langchain_tools_streamed": langchain_tools_streamed,
}
OTHERS: dict[str, Scenario] = {
    "openai_forced": openai_forced,
    "openai_structured": openai_structured,
    "openai_everything": openai_everything,
    "pydantic_ai_structured": pydantic_structured,
    "langchain_structured": langchain_structured,
}
