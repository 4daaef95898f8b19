"""DFlash: blocks of masks behind random roots of the text, filled in one pass (arXiv 2602.06036).

A block is [root, MASK, ...] at positions a, a + 1, ...; its context are the fused taps of the
positions before a, and slot i learns the token at a + i. The loss looks at a part of the target's
vocabulary only: the ids that the target writes often, and those of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.functional import embedding, linear

from whiflash.drafters.dflash.model import DFlashLayer, DFlashModel
from whiflash.drafters.dflash.zlab import read_zlab
from whiflash.models.draft.rope import Rope, make_rope
from whiflash.training.drafters.attention import attend_own
from whiflash.training.drafters.init import StartPoint, dflash_facts
from whiflash.training.drafters.layout import decoder_table
from whiflash.training.drafters.losses import soft_cross_entropy, teacher_probs
from whiflash.training.drafters.start import start_weights
from whiflash.training.features.facts import TargetEnds, TargetFacts
from whiflash.training.features.store import TextFeatures

_SLOT_DECAY: Final = 4.0
"""exp(-(slot - 1) / 4): what the paper takes for blocks of 8; later slots are looked at less."""
_TOKENS_PER_ROOT: Final = 3
_MEASURED_AT_ONCE: Final = 128


@dataclass(frozen=True, slots=True)
class _Blocks:
    """roots: int64 [m], positions. labels: int64 [m, slots - 1]; is_real: bool, whether the text
    reaches that far."""

    roots: torch.Tensor
    labels: torch.Tensor
    is_real: torch.Tensor


class DFlashObjective:
    """Trains a block drafter on the target's own embedding and head.

    ids: int64, the part of the vocabulary in every loss. mask_id: a row of the embedding that no
    text holds. block: slots, the root's included.
    """

    name = "dflash"

    def __init__(
        self,
        facts: TargetFacts,
        ends: TargetEnds,
        ids: torch.Tensor,
        mask_id: int,
        num_layers: int,
        block: int,
        seed: int,
    ) -> None:
        self._facts, self._mask_id, self._block = facts, mask_id, block
        self._num_layers = num_layers
        self._embedding, self._head = ends.embedding.float(), ends.head
        self._ids = ids.to(ends.head.device)
        config = read_zlab(self._config(), Path("config.json"))
        self.module: nn.Module = DFlashModel(config, facts.hidden_size)
        start_weights(self.module, seed)
        with torch.no_grad():
            self._model.norm.weight.copy_(ends.norm)
        device = ends.embedding.device
        self.module.to(device)
        self._rope: Rope = make_rope(config.rope_table, config.shape, torch.float32, device)

    @property
    def depth(self) -> int:
        return self._block - 1

    @property
    def _model(self) -> DFlashModel:
        assert isinstance(self.module, DFlashModel)
        return self.module

    def begin_from(self, start: StartPoint) -> None:
        """Takes its weights. Raises ConfigError where it is another network."""
        start.into(self.module, dflash_facts(read_zlab(self._config(), Path("config.json"))))

    def loss(self, texts: Sequence[TextFeatures], generator: torch.Generator) -> torch.Tensor:
        """Mean over slots, by their weights, of roots drawn from every text."""
        ids = self._loss_ids(texts)
        head = self._head[ids]
        weights = torch.exp(-torch.arange(self.depth, device=head.device) / _SLOT_DECAY)
        total, weight = self._embedding.new_zeros(()), 0.0
        for text in texts:
            blocks = self._blocks(text, _draw_roots(text, generator))
            logits = linear(self._fill(text, blocks.roots).flatten(0, 1), head.float())
            before = blocks.roots[:, None] + torch.arange(self.depth, device=head.device)
            hidden = text.hidden[before.clamp(max=len(text) - 1).flatten()]
            rows = (blocks.is_real * weights).flatten()
            total = total + soft_cross_entropy(logits, teacher_probs(hidden, head), rows)
            weight += float(rows.sum())
        return total / max(weight, 1e-6)

    def _loss_ids(self, texts: Sequence[TextFeatures]) -> torch.Tensor:
        seen = torch.cat([text.ids[text.num_prompt :] for text in texts])
        ids: torch.Tensor = torch.unique(torch.cat([self._ids, seen]))
        return ids

    def accepted(self, text: TextFeatures) -> torch.Tensor:
        roots = torch.arange(text.num_prompt, len(text) - 1, device=text.ids.device)
        with torch.no_grad():
            parts = [self._accepted_at(text, part) for part in roots.split(_MEASURED_AT_ONCE)]
        return torch.cat(parts) if parts else roots

    def _accepted_at(self, text: TextFeatures, roots: torch.Tensor) -> torch.Tensor:
        blocks = self._blocks(text, roots)
        hidden = self._fill(text, roots)
        found = linear(hidden.to(self._head.dtype), self._head).argmax(-1)
        right: torch.Tensor = (found == blocks.labels) & blocks.is_real
        return right.long().cumprod(-1).sum(-1)

    def _blocks(self, text: TextFeatures, roots: torch.Tensor) -> _Blocks:
        places = roots[:, None] + torch.arange(1, self._block, device=roots.device)
        is_real = places < len(text)
        return _Blocks(roots, text.ids[places.clamp(max=len(text) - 1)], is_real)

    def _fill(self, text: TextFeatures, roots: torch.Tensor) -> torch.Tensor:
        """[m, slots - 1, h] after the final norm, of the masked slots."""
        size, num = self._block, len(roots)
        ids = torch.full((num, size), self._mask_id, device=roots.device)
        ids[:, 0] = text.ids[roots]
        hidden = embedding(ids.flatten(), self._embedding)
        real = torch.arange(len(text), device=roots.device)
        places = (roots[:, None] + torch.arange(size, device=roots.device)).flatten()
        is_seen = real[None] < roots.repeat_interleave(size)[:, None]
        fused = self._model.fuse(text.taps.float())
        turns, own_turns = self._rope.turns(real), self._rope.turns(places)
        for layer in self._layers():
            attention = layer.self_attn
            x = layer.input_layernorm(hidden)
            own = (
                _per_row(attention.keys(x, own_turns), size),
                _per_row(attention.values(x), size),
            )
            query = attention.queries(x, own_turns)
            context = layer.context(fused, turns)
            attended = attend_own(query, context, is_seen, own, attention.scale)
            hidden = hidden + attention.output(attended)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        out: torch.Tensor = self._model.norm(hidden.view(num, size, -1)[:, 1:])
        return out

    def _layers(self) -> Iterator[DFlashLayer]:
        for layer in self._model.layers:
            assert isinstance(layer, DFlashLayer)
            yield layer

    def _config(self) -> dict[str, Any]:
        facts = self._facts
        return {
            "architectures": ["DFlashDraftModel"],
            **decoder_table(facts, model_type="qwen3", num_layers=self._num_layers),
            "layer_types": ["full_attention"] * self._num_layers,
            "use_sliding_window": False,
            "sliding_window": None,
            "num_target_layers": facts.num_layers,
            "block_size": self._block,
            "dflash_config": {
                "mask_token_id": self._mask_id,
                "target_layer_ids": [boundary - 1 for boundary in facts.boundaries],
            },
        }

    def checkpoint(self) -> tuple[Mapping[str, Any], Mapping[str, torch.Tensor]]:
        """z-lab's layout."""
        weights = {n: w.detach().cpu().bfloat16() for n, w in self._model.state_dict().items()}
        return self._config(), weights


def _draw_roots(text: TextFeatures, generator: torch.Generator) -> torch.Tensor:
    """Roots num_prompt, ..., L - 2 that this step looks at, in order."""
    first, num = text.num_prompt, len(text) - 1 - text.num_prompt
    count = max(num // _TOKENS_PER_ROOT, 1)
    drawn = torch.randperm(num, generator=generator)[:count].sort().values
    return (first + drawn).to(text.ids.device)


def _per_row(values: torch.Tensor, size: int) -> torch.Tensor:
    """[blocks * slots, ...] -> [blocks * slots, slots, ...]: each row sees its whole block."""
    blocks = values.view(-1, size, *values.shape[1:])
    return blocks.repeat_interleave(size, dim=0)
