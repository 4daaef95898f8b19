"""The EAGLE-3 head: one decoder layer (rarely more) between fused taps and draft logits.

Source: `eagle/model/cnets.py` of SafeAILab/EAGLE; variants of speculators (facts/drafters.md 1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from whiflash.core.fuse import FuseWeights
from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.fuse import dense_weight
from whiflash.models.draft.layers import GatedMLP, Projections, RMSNorm
from whiflash.models.draft.rope import Turns


@dataclass(frozen=True, slots=True)
class Eagle3Variant:
    """What checkpoints differ in.

    num_taps, tap_width: `fc` reads num_taps * tap_width numbers. norm_before_fc: one norm over
    all of them; has_fc_norms: one per tap. norm_before_residual: the residual is the normed
    feature. feeds_normed: the next step gets norm(out), not out. has_head_norms: of q and k.
    """

    shape: DecoderShape
    num_taps: int
    tap_width: int
    draft_vocab_size: int
    norm_before_fc: bool = False
    has_fc_norms: bool = False
    norm_before_residual: bool = False
    feeds_normed: bool = False
    has_head_norms: bool = False


class DraftRows(Protocol):
    """The rows of one call and their caches."""

    @property
    def is_stored(self) -> bool:
        """True where the rows' K/V are kept already and must not be written again."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """[N, key heads, width], behind what the rows' sequences hold."""

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> torch.Tensor:
        """[N, heads, width] -> [N, heads * width]."""


class FirstLayer(nn.Module):
    """Takes the token's embedding and the feature side by side, the embedding first."""

    def __init__(self, variant: Eagle3Variant) -> None:
        super().__init__()
        shape = variant.shape
        width, eps = shape.hidden_size, shape.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps)
        self.hidden_norm = RMSNorm(width, eps)
        self.self_attn = Projections(shape, 2 * width, has_head_norms=variant.has_head_norms)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = GatedMLP(shape)
        self._is_residual_normed = variant.norm_before_residual

    def enter(
        self, embedded: torch.Tensor, feature: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(what is projected [N, 2h], the residual [N, h])."""
        normed = self.hidden_norm(feature)
        both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        return both, normed if self._is_residual_normed else feature

    def leave(self, residual: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """[N, h] and [N, heads * width] -> [N, h]."""
        stream = residual + self.self_attn.output(attended)
        out: torch.Tensor = stream + self.mlp(self.post_attention_layernorm(stream))
        return out


class LaterLayer(FirstLayer):
    """A plain decoder layer behind the first."""

    def __init__(self, variant: Eagle3Variant) -> None:
        nn.Module.__init__(self)
        shape = variant.shape
        width, eps = shape.hidden_size, shape.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = Projections(shape, width, has_head_norms=variant.has_head_norms)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = GatedMLP(shape)

    def enter(
        self,
        embedded: torch.Tensor,  # noqa: ARG002  (only the first layer reads it)
        feature: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.input_layernorm(feature), feature


class Eagle3Body(nn.Module):
    """All weights of a checkpoint but an own embedding. Parameter names are those of the
    speculators layout."""

    def __init__(self, variant: Eagle3Variant) -> None:
        super().__init__()
        shape = variant.shape
        width, eps, taps = shape.hidden_size, shape.rms_norm_eps, variant.num_taps
        self.variant = variant
        self.fc = nn.Linear(taps * variant.tap_width, width, bias=False)
        self.input_norm = RMSNorm(taps * variant.tap_width, eps) if variant.norm_before_fc else None
        self.fc_norm = (
            nn.ModuleList(RMSNorm(variant.tap_width, eps) for _ in range(taps))
            if variant.has_fc_norms
            else None
        )
        layers: list[FirstLayer] = [FirstLayer(variant)]
        layers += [LaterLayer(variant) for _ in range(shape.num_hidden_layers - 1)]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(width, eps)
        self.lm_head = nn.Linear(width, variant.draft_vocab_size, bias=False)

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        """[n, num_taps * tap_width], low tap first -> [n, h]."""
        if self.input_norm is not None:
            taps = self.input_norm(taps)
        if self.fc_norm is not None:
            parts = taps.split(self.variant.tap_width, dim=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            taps = torch.cat(normed, dim=-1)
        fused: torch.Tensor = self.fc(taps)
        return fused

    def fuse_weights(self) -> FuseWeights:
        """All that `fuse` is made of."""
        whole, each = self.input_norm, self.fc_norm
        return FuseWeights(
            fc=dense_weight(self.fc),
            eps=self.variant.shape.rms_norm_eps,
            input_norm=None if whole is None else whole.weight.detach(),
            tap_norms=() if each is None else tuple(norm.detach() for norm in each.parameters()),
        )

    @property
    def _stack(self) -> Sequence[FirstLayer]:
        return list(self.layers)  # type: ignore[arg-type]  # a ModuleList of them

    def run(
        self, embedded: torch.Tensor, feature: torch.Tensor, turns: Turns, rows: DraftRows
    ) -> torch.Tensor:
        """All rows in full: [N, h] and [N, h] -> [N, h], before the final norm."""
        for number, layer in enumerate(self._stack):
            feature = _layer(layer, number, embedded, feature, turns, rows)
        return feature

    def store(
        self, embedded: torch.Tensor, feature: torch.Tensor, turns: Turns, rows: DraftRows
    ) -> None:
        """K and V of all rows and nothing else: the last layer is not run further (exact, for
        one layer as for more)."""
        *lower, last = self._stack
        for number, layer in enumerate(lower):
            feature = _layer(layer, number, embedded, feature, turns, rows)
        projected, _ = last.enter(embedded, feature)
        attention = last.self_attn
        rows.write(len(lower), attention.keys(projected, turns), attention.values(projected))

    def finish(self, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the feature that the next step gets [N, h], draft logits [N, draft vocabulary])."""
        normed = self.norm(out)
        return normed if self.variant.feeds_normed else out, self.lm_head(normed)


def _layer(
    layer: FirstLayer,
    number: int,
    embedded: torch.Tensor,
    feature: torch.Tensor,
    turns: Turns,
    rows: DraftRows,
) -> torch.Tensor:
    projected, residual = layer.enter(embedded, feature)
    attention = layer.self_attn
    if not rows.is_stored:
        rows.write(number, attention.keys(projected, turns), attention.values(projected))
    attended = rows.attend(number, attention.queries(projected, turns), attention.scale)
    return layer.leave(residual, attended)
