"""Records the requests of unmodified clients: python tests/e2e/clients/record.py

Writes tests/data/openai_requests/CLIENT_SCENARIO.json: the versions and each distinct set of
fields, with the first request that had it.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import scenarios

from whiflash import Engine
from whiflash.chat.constraints.compiler import GrammarCompiler
from whiflash.testing.http_server import HttpServer, Received

FOLDER = Path(__file__).parents[2] / "data" / "openai_requests"
PACKAGES = ("openai", "pydantic-ai-slim", "langchain-openai")


def distinct(requests: Sequence[Received]) -> list[dict[str, Any]]:
    """The first request of each path and set of fields, at most four messages of it."""
    found: dict[Any, dict[str, Any]] = {}
    for request in requests:
        if request.body is None:
            continue
        body = dict(request.body)
        if "messages" in body:
            body["messages"] = body["messages"][:4]
        found.setdefault((request.path, *sorted(body)), {"path": request.path, "body": body})
    return list(found.values())


def main() -> None:
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    FOLDER.mkdir(parents=True, exist_ok=True)
    engine = Engine(dtype="float32", constraints=GrammarCompiler)
    with engine, HttpServer(engine, scenarios.MODEL) as server:
        for name, run in {**scenarios.TOOL_LOOPS, **scenarios.OTHERS}.items():
            server.received.clear()
            scenarios.reset()
            run(f"{server.url}/v1", lambda: None)
            record = {"versions": versions, "requests": distinct(server.received)}
            text = json.dumps(record, indent=1, ensure_ascii=False)
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(name, len(record["requests"]))


if __name__ == "__main__":
    main()
