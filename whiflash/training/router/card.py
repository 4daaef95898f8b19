"""The card of a router file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_FULL = 40


def router_card(told: Mapping[str, Any]) -> str:
    """Markdown. told: what stands in the router's .json."""
    source = told["provenance"]
    parts = [
        f"# Router for the target `{told['target']}`",
        f"Chooses each round between {', '.join(told['arms'])} and no draft; it cannot change a "
        "text. Trained on logged rounds over text that the target wrote itself: every arm proposes "
        "at every root. Figures are of held-out prompts.",
        *_heads(told["heads"]),
    ]
    if "neural" in told:
        parts += _neural(told["neural"])
    parts.append(f"Command: `{source['command']}`\nCommit: {source['commit']}; {source['date']}; "
                 f"torch {source['torch']}")  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _heads(table: Mapping[str, Any]) -> Iterator[str]:
    yield "## Heads (`--policy goodput`)"
    yield (f"{table['roots']} roots, {table['held_out_roots']} of them held out. Error is in nats "
           "a node, beside that of the mean by rank.")  # fmt: skip
    rows = ["| arm | accepted length | expected | explained | error | of the mean |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    for arm, f in table["arms"].items():
        lengths = f"{f['accepted_length']:.2f} | {f['expected']:.2f} | {f['explained']:.0%}"
        cells = arm, lengths, f"{f['error']:.3f}", f"{f['error_of_rates']:.3f}"
        rows.append(f"| {' | '.join(cells)} |")
    yield "\n".join(rows)
    for arm, figures in table["arms"].items():
        yield f"### Reliability: {arm}"
        for name in ("reliability", "claims", "calibrated"):
            if figures[name]:
                yield "\n".join(_reliability(_TITLES[name], figures[name]))


_TITLES = {
    "reliability": "the head, before it drafts",
    "claims": "the draft's own survival",
    "calibrated": "that, calibrated",
}


def _reliability(title: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {title}: said | came true | nodes | |"
    yield "|---|---|---|---|"
    for row in rows:
        bar = "#" * round(_FULL * row["true"])
        yield f"| {row['said']:.3f} | {row['true']:.3f} | {row['nodes']} | `{bar}` |"


def _neural(table: Mapping[str, Any]) -> Iterator[str]:
    yield "## Network (`--policy neural`)"
    lengths = ", ".join(f"{arm} {value:.2f}" for arm, value in table["accepted_length"].items())
    positive, negative = table["arms"]
    yield (f"dAL of {positive} over {negative}: explains {table['explained']:.0%} on "
           f"{table['held_out_roots']} held-out roots, finds the sign in "
           f"{table['right_sign']:.0%}. Accepted length at every root: {lengths}.")  # fmt: skip
