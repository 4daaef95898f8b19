"""The same tool loop over gRPC, streamed. Start `whiflash serve`, then:

python docs/agents/with_grpc.py
"""

import json
import sys

from rooms import QUESTIONS, TOOL, book_room, example_messages, require_server

from whiflash.client import Chat, Client, Ended, history_message

address = sys.argv[1] if sys.argv[1:] else "127.0.0.1:9000"
require_server(address)
messages = example_messages()
with Client(address) as client:
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        for _ in range(4):
            chat = Chat(messages, [TOOL])
            for event in client.stream(chat, temperature=0, max_tokens=120):
                if isinstance(event, Ended):
                    answer = event
            messages.append(history_message(answer.message))
            usage = answer.usage
            print(f"{usage.prompt_tokens} prompt tokens, {usage.cached_tokens} cached")
            for call in answer.message.tool_calls:
                result = book_room(**json.loads(call.arguments))
                print(f"{call.name}({call.arguments}) -> {result}")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not answer.message.tool_calls:
                break
        print(answer.message.content)
