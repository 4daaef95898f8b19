"""What unmodified clients do against a server: tool loops and structured answers, streamed and not.

Each scenario takes the base URL and a function that it calls after each user turn. The requests
that they send are recorded by `python tests/e2e/clients/record.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
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

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "agents"))
import rooms

MODEL = "smollm2-135m"
MAX_STEPS = 4
EndTurn = Callable[[], None]
Scenario = Callable[[str, EndTurn], None]


class Room(BaseModel):
    """A room of the office."""

    name: str
    seats: int


def openai_client(url: str) -> openai.OpenAI:
    client = httpx.Client(trust_env=False, timeout=120)
    return openai.OpenAI(base_url=url, api_key="none", http_client=client, max_retries=0)


def openai_examples() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": rooms.SYSTEM}]
    for number, (question, arguments, result, answer) in enumerate(rooms.example_turns()):
        function = {"name": "book_room", "arguments": json.dumps(arguments)}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
            {"role": "assistant", "content": answer},
        ]
    return messages


def openai_loop(url: str, end_turn: EndTurn, is_stream: bool) -> None:
    client = openai_client(url)
    messages: Any = openai_examples()
    tools: Any = [rooms.TOOL]
    for question in rooms.QUESTIONS:
        messages.append({"role": "user", "content": question})
        for _ in range(MAX_STEPS):
            fields: Any = {
                "model": MODEL, "messages": messages, "tools": tools, "temperature": 0,
                "max_completion_tokens": 120,
            }  # fmt: skip
            if is_stream:
                usage = {"include_usage": True}
                with client.chat.completions.stream(**fields, stream_options=usage) as stream:
                    answer = stream.get_final_completion()
            else:
                answer = client.chat.completions.create(**fields)
            message = answer.choices[0].message
            assert answer.usage is not None
            messages.append(message.model_dump(exclude_unset=True, exclude={"parsed"}))
            for call in messages[-1].get("tool_calls") or ():
                call["function"].pop("parsed_arguments", None)
            if not message.tool_calls:
                break
            assert answer.choices[0].finish_reason == "tool_calls"
            for each in message.tool_calls:
                result = rooms.book_room(**json.loads(each.function.arguments))
                messages.append({"role": "tool", "tool_call_id": each.id, "content": result})
        check_answer(question, message.content)
        end_turn()


def openai_tools(url: str, end_turn: EndTurn) -> None:
    openai_loop(url, end_turn, is_stream=False)


def openai_tools_streamed(url: str, end_turn: EndTurn) -> None:
    openai_loop(url, end_turn, is_stream=True)


def openai_forced(url: str, end_turn: EndTurn) -> None:
    """`required` and a named function: a call, whatever was asked."""
    client = openai_client(url)
    tools: Any = [rooms.TOOL]
    named: Any = {"type": "function", "function": {"name": "book_room"}}
    for choice in ("required", named):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hello."}],
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=False,
            max_tokens=200,
            temperature=0,
        )
        (call,) = answer.choices[0].message.tool_calls or ()
        assert call.type == "function"
        assert json.loads(call.function.arguments).keys() == {"title", "day", "time", "room"}
        end_turn()


def openai_structured(url: str, end_turn: EndTurn) -> None:
    client = openai_client(url)
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Room Green has 12 seats. Name it as JSON."}],
        response_format=Room,
        max_tokens=100,
        temperature=0,
    )
    assert isinstance(answer.choices[0].message.parsed, Room)
    end_turn()


def openai_everything(url: str, end_turn: EndTurn) -> None:
    """Every parameter of the SDK that is honoured or has no effect, at once."""
    client = openai_client(url)
    fields: Any = {
        "model": MODEL,
        "messages": [{"role": "developer", "content": "Be short."},
                     {"role": "user", "content": "Count to five.", "name": "ada"}],
        "temperature": 0.7, "top_p": 0.9, "n": 2, "seed": 7, "stop": ["seven"], "max_tokens": 24,
        "presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"99": -5},
        "logprobs": True, "top_logprobs": 2, "user": "ada", "metadata": {"ticket": "7"},
        "store": False, "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s",
        "prediction": {"type": "content", "content": "1, 2, 3, 4, 5"},
        "response_format": {"type": "text"},
        "extra_body": {"top_k": 40, "min_p": 0.01, "repetition_penalty": 1.05,
                       "whiflash": {"no_store": True, "run_id": "r", "agent": "a"}},
    }  # fmt: skip
    answer = client.chat.completions.create(**fields)
    assert len(answer.choices) == 2
    texts = [choice.message.content for choice in answer.choices]
    chunks = list(client.chat.completions.create(**fields, stream=True))
    for index, text in enumerate(texts):
        parts = [
            c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index
        ]
        assert "".join(parts) == text
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.accepted_prediction_tokens is not None
    plain = client.completions.create(
        model=MODEL, prompt="One, two, three,", max_tokens=8, temperature=0, logprobs=1, echo=False
    )
    assert plain.choices[0].text
    end_turn()


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


def langchain_model(url: str, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL,
        base_url=url,
        api_key=SecretStr("none"),
        temperature=0,
        max_retries=0,
        http_client=httpx.Client(trust_env=False, timeout=120),
        **fields,
    )


def langchain_loop(url: str, end_turn: EndTurn, is_stream: bool) -> None:
    book = tool(rooms.book_room)
    model = langchain_model(url, max_tokens=120, stream_usage=True).bind_tools([book])
    messages: list[Any] = [SystemMessage(rooms.SYSTEM)]
    for number, (question, arguments, result, answer) in enumerate(rooms.example_turns()):
        call: Any = {"name": "book_room", "args": arguments, "id": f"call_{number}"}
        messages += [
            HumanMessage(question),
            AIMessage("", tool_calls=[call]),
            ToolMessage(result, tool_call_id=call["id"]),
            AIMessage(answer),
        ]
    for question in rooms.QUESTIONS:
        messages.append(HumanMessage(question))
        for _ in range(MAX_STEPS):
            if is_stream:
                first, *rest = model.stream(messages)
                message: Any = sum(rest, start=first)
            else:
                message = model.invoke(messages)
            messages.append(message)
            messages.extend(book.invoke(call) for call in message.tool_calls)
            if not message.tool_calls:
                break
        check_answer(question, message.content)
        end_turn()


def langchain_tools(url: str, end_turn: EndTurn) -> None:
    langchain_loop(url, end_turn, is_stream=False)


def langchain_tools_streamed(url: str, end_turn: EndTurn) -> None:
    langchain_loop(url, end_turn, is_stream=True)


def langchain_structured(url: str, end_turn: EndTurn) -> None:
    for method in ("json_schema", "function_calling"):
        model = langchain_model(url, max_tokens=200)
        structured: Any = model.with_structured_output(Room, method=method)
        assert isinstance(structured.invoke("Room Green has 12 seats."), Room)
        end_turn()


def reset() -> None:
    """The rooms as they were at first."""
    rooms.BOOKED.clear()
    rooms.BOOKED["Thursday", "14:30", "Blue"] = "press call"


def check_answer(question: str, answer: str | None) -> None:
    """The tool really ran, and the model says what it did."""
    room, day = question.split()[2], question.split()[4]
    assert answer is not None
    assert room in answer
    assert day in answer
    assert any(day in slot[0] and room in slot[2] for slot in rooms.BOOKED)


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
