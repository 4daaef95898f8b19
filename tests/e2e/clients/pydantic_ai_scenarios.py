"""pydantic-ai: tool loops, and structured answers by a call and by a response format."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
from client_setting import MODEL, EndTurn, Room, check_answer, rooms
from pydantic_ai import Agent, NativeOutput, ToolOutput
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
from pydantic_ai.providers.openai import OpenAIProvider


def pydantic_model(url: str) -> OpenAIChatModel:
    client = httpx.AsyncClient(trust_env=False, timeout=120)
    provider = OpenAIProvider(
        openai_client=openai.AsyncOpenAI(
            base_url=url, api_key="none", http_client=client, max_retries=0
        )
    )
    return OpenAIChatModel(MODEL, provider=provider)


def pydantic_examples() -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for number, (question, arguments, result, answer) in enumerate(rooms.example_turns()):
        call = f"call_{number}"
        messages += [
            ModelRequest([UserPromptPart(question)]),
            ModelResponse([ToolCallPart("book_room", arguments, call)]),
            ModelRequest([ToolReturnPart("book_room", result, call)]),
            ModelResponse([TextPart(answer)]),
        ]
    return messages


async def pydantic_loop(url: str, end_turn: EndTurn, is_stream: bool) -> None:
    agent = Agent(pydantic_model(url), instructions=rooms.SYSTEM, tools=[rooms.book_room])
    history = pydantic_examples()
    settings: Any = {"temperature": 0.0, "max_tokens": 120}
    for question in rooms.QUESTIONS:
        fields: Any = {"message_history": history, "model_settings": settings}
        if is_stream:
            async with agent.run_stream(question, **fields) as stream:
                output = await stream.get_output()
            history = stream.all_messages()
        else:
            answer = await agent.run(question, **fields)
            output, history = answer.output, answer.all_messages()
        check_answer(question, output)
        end_turn()


def pydantic_tools(url: str, end_turn: EndTurn) -> None:
    asyncio.run(pydantic_loop(url, end_turn, is_stream=False))


def pydantic_tools_streamed(url: str, end_turn: EndTurn) -> None:
    asyncio.run(pydantic_loop(url, end_turn, is_stream=True))


def pydantic_structured(url: str, end_turn: EndTurn) -> None:
    """By a forced call, and by a response format."""

    async def run() -> None:
        for output in (ToolOutput(Room), NativeOutput(Room)):
            agent = Agent(pydantic_model(url), output_type=output)
            settings: Any = {"temperature": 0.0, "max_tokens": 200}
            answer = await agent.run("Room Green has 12 seats.", model_settings=settings)
            assert isinstance(answer.output, Room)
            end_turn()

    asyncio.run(run())
