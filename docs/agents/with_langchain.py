"""The same tool loop with LangChain. Start `whiflash serve`, then:

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none
python docs/agents/with_langchain.py
"""

import os

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from rooms import QUESTIONS, SYSTEM, book_room, example_turns, require_server


def examples() -> list[BaseMessage]:
    """The conversation so far, in LangChain's words."""
    messages: list[BaseMessage] = [SystemMessage(SYSTEM)]
    for number, (question, arguments, result, answer) in enumerate(example_turns()):
        call = {"name": "book_room", "args": arguments, "id": f"call_{number}"}
        messages += [
            HumanMessage(question),
            AIMessage("", tool_calls=[call]),
            ToolMessage(result, tool_call_id=call["id"]),
            AIMessage(answer),
        ]
    return messages


require_server()
rooms = tool(book_room)
model = ChatOpenAI(
    model=os.environ.get("WHIFLASH_MODEL", "smollm2-135m"),
    temperature=0,
    max_tokens=120,
    stream_usage=True,
).bind_tools([rooms])
messages = examples()
for question in QUESTIONS:
    messages.append(HumanMessage(question))
    for _ in range(4):
        answer = AIMessageChunk("")
        for chunk in model.stream(messages):
            answer += chunk
        messages.append(answer)
        usage = answer.usage_metadata
        print(f"{usage['input_tokens']} prompt tokens, {usage['input_token_details']} of them")
        for call in answer.tool_calls:
            print(f"{call['name']}({call['args']})")
            messages.append(rooms.invoke(call))
        if not answer.tool_calls:
            break
    print(answer.content)
