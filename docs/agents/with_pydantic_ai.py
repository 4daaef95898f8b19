"""The same agent with pydantic-ai, streaming its answers. Start `whiflash serve`, then:

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none
python docs/agents/with_pydantic_ai.py
"""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from rooms import QUESTIONS, SYSTEM, book_room, example_turns, require_server


def examples() -> list[ModelMessage]:
    """The conversation so far, in pydantic-ai's words."""
    messages: list[ModelMessage] = []
    for number, (question, arguments, result, answer) in enumerate(example_turns()):
        call = f"call_{number}"
        messages += [
            ModelRequest([UserPromptPart(question)]),
            ModelResponse([ToolCallPart("book_room", arguments, call)]),
            ModelRequest([ToolReturnPart("book_room", result, call)]),
            ModelResponse([TextPart(answer)]),
        ]
    return messages


async def main() -> None:
    """Two questions of one conversation."""
    model = OpenAIChatModel(os.environ.get("WHIFLASH_MODEL", "smollm2-135m"))
    agent = Agent(model, instructions=SYSTEM, tools=[book_room])
    history = examples()
    for question in QUESTIONS:
        async with agent.run_stream(
            question, message_history=history, model_settings={"temperature": 0, "max_tokens": 120}
        ) as answer:
            print(await answer.get_output())
        history = answer.all_messages()
        usage = answer.usage
        print(f"{usage.input_tokens} prompt tokens, {usage.cache_read_tokens} cached")


require_server()
asyncio.run(main())
