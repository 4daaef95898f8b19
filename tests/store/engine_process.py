"""An engine in a process of its own: `python engine_process.py MODEL STORE`.

Every line on standard input is a JSON list of prompts; the answer is a line of JSON: the texts,
the tokens per round (rounds that ended an answer left out), and the tokens of earlier runs that
could be drafted from when the prompts came. It ends with its input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion
from whiflash.engine.engine import Engine

PARAMS = SamplingParams(max_tokens=60, ignore_eos=True)
FLUSH_S = 30.0


def answer(engine: Engine, prompts: list[str]) -> dict[str, Any]:
    store = engine.store
    index = store.indexes.live(store.namespace("local"))
    is_read = store.indexes.flush(FLUSH_S) and store.indexes.ready_shared
    known = index.num_tokens
    done = [engine.generate(prompt, PARAMS, run_id=prompt).choices[0] for prompt in prompts]
    is_written = store.log.flush(FLUSH_S)
    return {
        "texts": [completion.text for completion in done],
        "tokens_per_round": tokens_per_round(done),
        "known": known,
        "is_settled": is_read and is_written,
    }


def tokens_per_round(done: list[Completion]) -> float:
    arms = [usage for completion in done for usage in completion.usage.arms.values()]
    return sum(usage.emitted for usage in arms) / sum(usage.rounds for usage in arms)


def main(model: str, store: str) -> None:
    with Engine(
        model=model, dtype="float64", policy="static:arm=retrieval", plain_share=0.0, store=store
    ) as engine:
        for line in sys.stdin:
            print(json.dumps(answer(engine, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
