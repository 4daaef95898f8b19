"""The README of a trained drafter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_card(name: str, training: Mapping[str, Any]) -> str:
    """Markdown. training: the table of training.json."""
    figures = training["acceptance"]
    depth = len(next(iter(figures.values()))["positions"])
    rows = "\n".join(_row(kind, figure) for kind, figure in figures.items())
    settings = "\n".join(f"- {key}: {value}" for key, value in training["settings"].items()
                         if key != "init")  # fmt: skip
    source = training["provenance"]
    return f"""# {name} drafter for {training["target"]["name"]}

Proposes tokens that the target verifies; it cannot change a text. It fits the target with the
fingerprint `{training["target"]["fingerprint"]}` only.

Trained on {training["texts"]} texts ({training["answer_tokens"]} tokens) that the target wrote
itself, half of them greedily and half at temperature 1, in answer to prompts written for this
project. Seen {training["tokens_seen"]} tokens in {training["steps"]} steps{_began(training)}.

## Acceptance on held-out prompts

Greedy text, chains of {depth}, {training["held_out_texts"]} texts. AL is tokens a round, the
target's own included; then the share of rounds whose i-th draft was accepted.

| text | AL | {" | ".join(str(i) for i in range(1, depth + 1))} | rounds |
|---|---|{"---|" * depth}---|
{rows}

## Settings

{settings}

Command: `{source["command"]}`
Commit: {source["commit"]}; {source["date"]}; torch {source["torch"]}
"""


def _began(training: Mapping[str, Any]) -> str:
    """Behind the number of steps: which weights came before them."""
    init = training["settings"].get("init")
    if init is None:
        return ""
    before = ""
    if "steps" in init:
        before = f", which had seen {init['tokens_seen']} tokens in {init['steps']} steps"
    return f" that began with the\nweights `{init['weights']}`{before}"


def _row(kind: str, figure: Mapping[str, Any]) -> str:
    shares = " | ".join(f"{share:.3f}" for share in figure["positions"])
    return f"| {kind} | {figure['accepted_length']:.2f} | {shares} | {figure['rounds']} |"
