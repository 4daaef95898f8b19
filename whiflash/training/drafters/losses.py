"""How far a drafter's distribution is from the target's, over the drafter's vocabulary."""

from __future__ import annotations

import torch


def teacher_probs(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """float32 [n, ids]: the target's distribution over the ids whose head rows are given
    ([ids, h]), from its final hidden states [n, h]. No gradient."""
    with torch.no_grad():
        return torch.nn.functional.linear(hidden.to(head.dtype), head).float().softmax(-1)


def soft_cross_entropy(
    logits: torch.Tensor, probs: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sum over rows of -sum(p log q); logits and probs: [n, ids], weights: [n]."""
    log_q = torch.log_softmax(logits.float(), -1)
    return -(weights * (probs * log_q).sum(-1)).sum()
