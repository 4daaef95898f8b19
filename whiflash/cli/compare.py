"""The no-draft twin: the same engine, the same request, drafting on and off in alternation."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whiflash.core.params import SamplingParams
from whiflash.core.results import Completion
from whiflash.core.rows import NONE

if TYPE_CHECKING:
    from whiflash.engine.engine import Engine

NUM_PAIRS = 3
_fresh = itertools.count()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decode times in milliseconds, one per run, drafting and twin in pairs."""

    drafted: tuple[Completion, ...]
    plain: tuple[Completion, ...]

    @property
    def is_same_text(self) -> bool:
        first = self.plain[0].token_ids
        return all(run.token_ids == first for run in (*self.drafted, *self.plain))

    @property
    def ratio(self) -> float:
        """Median over pairs of the twin's decode time over the drafting run's."""
        pairs = zip(self.drafted, self.plain, strict=True)
        return statistics.median(
            plain.usage.decode_ms / max(drafted.usage.decode_ms, 1e-9) for drafted, plain in pairs
        )

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "same_text": self.is_same_text,
            "ratio": round(self.ratio, 4),
            "pairs": len(self.drafted),
            "decode_ms": [round(run.usage.decode_ms, 3) for run in self.drafted],
            "twin_decode_ms": [round(run.usage.decode_ms, 3) for run in self.plain],
        }

    def lines(self) -> Iterator[str]:
        """For a person."""
        num_tokens = self.drafted[0].usage.completion_tokens
        for title, runs in (("drafting", self.drafted), ("no-draft twin", self.plain)):
            decode_ms = statistics.median(run.usage.decode_ms for run in runs)
            rounds = statistics.median(run.usage.rounds for run in runs)
            speed = num_tokens / max(decode_ms, 1e-9) * 1000
            yield (
                f"{title + ':':<15}{num_tokens} tokens in {rounds:.0f} rounds, "
                f"{decode_ms / 1000:.2f} s, {speed:.1f} tokens/s"
            )
        yield f"ratio: {self.ratio:.2f}x (median of {len(self.drafted)} alternating pairs)"
        yield f"same text: {'yes' if self.is_same_text else 'no'}"


def compare(
    engine: Engine, prompt_ids: list[int], params: SamplingParams, num_pairs: int = NUM_PAIRS
) -> Comparison:
    """Runs pairs in ABBA order. Every run has a namespace of its own and stores nothing, so
    none drafts from another's answer or reuses its prefix."""
    runs: dict[str | None, list[Completion]] = {None: [], NONE: []}
    for pair in range(num_pairs):
        order: list[str | None] = [None, NONE] if pair % 2 == 0 else [NONE, None]
        for drafter in order:
            generation = engine.generate(
                prompt_ids,
                dataclasses.replace(params),
                namespace=f"compare-{next(_fresh)}",
                drafter=drafter,
                store=False,
            )
            runs[drafter].append(generation.choices[0])
    return Comparison(tuple(runs[None]), tuple(runs[NONE]))
