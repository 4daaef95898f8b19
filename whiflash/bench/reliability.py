"""Renders docs/reliability.md from docs/reliability/faults.json, which `make soak` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_INTRO = """# Reliability

Rendered from `docs/reliability/faults.json` by `make soak` and `make fix`; do not edit.
Every part is a process of its own on one machine (no Ray): a gateway, two verifiers of the float64
toy model, hosted EAGLE-3 and DFlash drafters, a router, Redis. While many seeded turns run at once
(each pinned to an arm or routed) one part is killed or drained, or the way to one is spoilt by a
TCP relay. A turn counts as equal if its token ids and its text are those of the undisturbed run,
retries of the client included. A fault is passed when all turns are equal, every arm drafts
before and after it, and then no verifier holds K/V or sequences and no gauge of the gateway
shows a call.

Ways: slow (20 ms a chunk), held (nothing passes, all comes later), black hole (swallowed without
an error), cut (connections reset); flip (a bit), repeat, swap and lose (whole chunks, as TCP's own
sum might let pass): these end the stream with a status that says so.
"""


def render_reliability(result: Mapping[str, Any]) -> str:
    """The whole page."""
    return "\n".join([_INTRO, *_lines(result)]).rstrip() + "\n"


def read_reliability(file: Path) -> dict[str, Any]:
    """What the soak wrote."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    origin, runs = result["provenance"], result["runs"]
    machine = origin["machine"]
    passed = sum(run["is_sound"] for run in runs)
    commit = origin["commit"][:12] if origin["commit"] else "none"
    changed = " with local changes" if origin["is_dirty"] else ""
    yield f"- command `{origin['command']}`, {origin['date_utc']}, commit {commit}{changed}"
    yield f"- machine: {machine['cpu']}, {machine['cores']} cores"
    yield f"- faults passed: {passed} of {len(runs)}"
    yield ""
    yield "| fault | turns equal | moved | drafted before | drafted after | left behind | time |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        cells = (
            run["fault"], f"{run['equal']} of {run['turns']}", str(run["moves"]),
            _drafts(run["drafted_before"]), _drafts(run["drafted_after"]),
            "; ".join(run["leaks"]) or "nothing",
            f"{run['seconds']:.1f} s ({run['undisturbed_s']:.1f} s undisturbed)",
        )  # fmt: skip
        yield "| " + " | ".join(cells) + " |"
    yield ""
    if result["left_out"]:
        yield f"Not run for want of time: {'; '.join(result['left_out'])}."
        yield ""
    yield "Moved: turns that went on at another verifier, as the gateway counted them; a gateway"
    yield "that was killed counts anew. Drafted: tokens of each arm in a few pinned turns."


def _drafts(drafted: Mapping[str, int]) -> str:
    return ", ".join(f"{arm} {count}" for arm, count in drafted.items())
