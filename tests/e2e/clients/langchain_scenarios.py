"""LangChain: tool loops, and structured answers by both of its methods."""

from __future__ import annotations

from typing import Any

import httpx
from client_setting import MAX_STEPS, MODEL, EndTurn, Room, check_answer, rooms
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr


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
