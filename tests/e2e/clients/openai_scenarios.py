"""The OpenAI SDK: tool loops, forced calls, structured answers, every parameter."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
from client_setting import MAX_STEPS, MODEL, EndTurn, Room, check_answer, rooms


def openai_client(url: str) -> openai.OpenAI:
    client = httpx.Client(trust_env=False, timeout=120)
    return openai.OpenAI(base_url=url, api_key="none", http_client=client, max_retries=0)


def openai_loop(url: str, end_turn: EndTurn, is_stream: bool) -> None:
    client = openai_client(url)
    messages: Any = rooms.example_messages()
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
