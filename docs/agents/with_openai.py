"""A tool loop with the OpenAI SDK. Start `whiflash serve`, then:

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none
python docs/agents/with_openai.py
"""

import json

from openai import OpenAI
from rooms import QUESTIONS, TOOL, book_room, example_messages, require_server

require_server()
client = OpenAI()
model = client.models.list().data[0].id
messages = example_messages()
for question in QUESTIONS:
    messages.append({"role": "user", "content": question})
    for _ in range(4):
        answer = client.chat.completions.create(
            model=model, messages=messages, tools=[TOOL], temperature=0, max_tokens=120
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_unset=True))
        cached = answer.usage.prompt_tokens_details.cached_tokens
        print(f"{answer.usage.prompt_tokens} prompt tokens, {cached} cached")
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = book_room(**json.loads(call.function.arguments))
            print(f"{call.function.name}({call.function.arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(message.content)
