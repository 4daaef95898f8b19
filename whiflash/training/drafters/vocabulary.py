"""Which ids a drafter can draft: those that the target writes."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from whiflash.training.features.facts import TargetFacts


def draft_ids(
    answers: Iterable[torch.Tensor], facts: TargetFacts, size: int
) -> tuple[torch.Tensor, float]:
    """The `size` most frequent ids of the answers (int64, ascending; the end of text is always
    among them, ties go to the lower id), and the share of the answers' tokens that they cover."""
    counts = count_ids(answers, facts.vocab_size)
    total = int(counts.sum())
    ends = list(facts.special_ids[:1])
    weights = counts.clone()
    weights[ends] = total + 1
    best = torch.argsort(weights, descending=True, stable=True)[: min(size, facts.vocab_size)]
    chosen = best.sort().values
    return chosen, coverage(chosen, counts)


def count_ids(answers: Iterable[torch.Tensor], vocab_size: int) -> torch.Tensor:
    """int64 [vocab_size]: how often each id was written."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for answer in answers:
        counts += torch.bincount(answer, minlength=vocab_size)
    return counts


def coverage(ids: torch.Tensor, counts: torch.Tensor) -> float:
    """Share of the tokens that are among `ids`."""
    return float(counts[ids].sum()) / max(int(counts.sum()), 1)


def d2t_t2d(ids: torch.Tensor, vocab_size: int) -> dict[str, torch.Tensor]:
    """The two tables of a reduced vocabulary: offsets int64 [size], marks bool [vocab_size]."""
    marks = torch.zeros(vocab_size, dtype=torch.bool)
    marks[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": marks}
