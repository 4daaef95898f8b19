"""Attention of many rows of one text on its context and a few keys of their own, with gradients."""

from __future__ import annotations

import torch


def attend_own(
    query: torch.Tensor,
    context: tuple[torch.Tensor, torch.Tensor],
    is_seen: torch.Tensor,
    own: tuple[torch.Tensor, torch.Tensor],
    scale: float,
) -> torch.Tensor:
    """query: [n, heads, width]; context K and V: [m, key heads, width]; is_seen: bool [n, m];
    own K and V: [n, s, key heads, width], s keys that row i alone sees (s may be 0).

    Returns [n, heads * width].
    """
    num, heads, width = query.shape
    keys, values = context
    groups = keys.shape[1]
    grouped = query.view(num, groups, heads // groups, width)
    scores = torch.einsum("nghd,mgd->nghm", grouped, keys) * scale
    scores = scores.float().masked_fill(~is_seen[:, None, None], -torch.inf)
    own_scores = torch.einsum("nghd,nsgd->nghs", grouped, own[0]) * scale
    weights = torch.cat([scores, own_scores.float()], dim=-1).softmax(-1)
    seen, rest = weights.split([len(keys), own[0].shape[1]], dim=-1)
    out = torch.einsum("nghm,mgd->nghd", seen, values)
    out = out + torch.einsum("nghs,nsgd->nghd", rest, own[1])
    return out.reshape(num, heads * width)
