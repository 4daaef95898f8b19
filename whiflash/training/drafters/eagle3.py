"""EAGLE-3 by training-time test: the head is unrolled over its own features, as it is run.

Everything is indexed by the last real position o of a round. Step j takes the text's token
o + 1 + j and the feature of step j - 1, sits at position o + j and predicts token o + 2 + j; it
sees the real positions up to o, and the steps 1..j of its own round (arXiv 2503.01840). As drafts
behind a wrong one are never accepted, feeding the text's own tokens measures acceptance exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn.functional import embedding

from whiflash.drafters.eagle3.model import Eagle3Body, Eagle3Variant, FirstLayer
from whiflash.models.draft.config import DecoderShape
from whiflash.models.draft.rope import Rope, make_rope
from whiflash.training.drafters.attention import attend_own
from whiflash.training.drafters.init import StartPoint, eagle3_facts
from whiflash.training.drafters.layout import decoder_table
from whiflash.training.drafters.losses import soft_cross_entropy, teacher_probs
from whiflash.training.drafters.start import start_weights
from whiflash.training.drafters.vocabulary import d2t_t2d
from whiflash.training.features.facts import TargetEnds, TargetFacts
from whiflash.training.features.store import TextFeatures

_STEP_DECAY: Final = 0.8


@dataclass(frozen=True, slots=True)
class _Round:
    """One step of all rounds of a text. roots: positions o; features before the final norm."""

    step: int
    logits: torch.Tensor
    labels: torch.Tensor


class Eagle3Objective:
    """Trains one layer over fused taps, with a head over `ids` (int64, ascending).

    num_steps: unrolled steps of the loss; depth: drafts that acceptance is measured over.
    """

    name = "eagle3"

    def __init__(
        self,
        facts: TargetFacts,
        ends: TargetEnds,
        ids: torch.Tensor,
        num_steps: int,
        depth: int,
        seed: int,
    ) -> None:
        self._facts, self._ids = facts, ids
        self.num_steps, self.depth = num_steps, depth
        device = ends.embedding.device
        self._draft_id = torch.full((facts.vocab_size,), -1, device=device)
        self._draft_id[ids] = torch.arange(len(ids), device=device)
        self._embedding = ends.embedding.float()
        self._teacher = ends.head[ids]
        shape = DecoderShape.model_validate(self._table())
        variant = Eagle3Variant(shape, len(facts.boundaries), facts.hidden_size, len(ids))
        self.module: nn.Module = Eagle3Body(variant)
        start_weights(self.module, seed)
        with torch.no_grad():
            self._body.lm_head.weight.copy_(ends.head[ids])
            self._body.norm.weight.copy_(ends.norm)
        self.module.to(device)
        self._rope: Rope = make_rope(self._table(), shape, torch.float32, device)

    @property
    def _body(self) -> Eagle3Body:
        assert isinstance(self.module, Eagle3Body)
        return self.module

    def _table(self) -> dict[str, Any]:
        return decoder_table(self._facts, model_type="llama", num_layers=1)

    def begin_from(self, start: StartPoint) -> None:
        """Takes its weights. Raises ConfigError where it is another network."""
        facts = eagle3_facts(self._body.variant, self._table(), self._facts.boundaries)
        start.into(self.module, facts)

    def loss(self, texts: Sequence[TextFeatures], generator: torch.Generator) -> torch.Tensor:
        """Mean over rows and steps; a step weighs 0.8 of the one before. `generator` is unused:
        every root of every text is taken."""
        del generator
        total = self._embedding.new_zeros(())
        weight = 0.0
        for text in texts:
            teacher = teacher_probs(text.hidden[text.num_prompt : -1], self._teacher)
            for found in self._rounds(text, self.num_steps):
                draft_labels = self._draft_id[found.labels]
                rows = draft_labels >= 0
                probs = teacher[found.step : found.step + len(rows)]
                factor = _STEP_DECAY**found.step
                total = total + factor * soft_cross_entropy(found.logits, probs, rows.float())
                weight += factor * float(rows.sum())
        return total / max(weight, 1.0)

    def accepted(self, text: TextFeatures) -> torch.Tensor:
        with torch.no_grad():
            still = torch.ones(self._num_roots(text), dtype=torch.bool, device=text.ids.device)
            counts = torch.zeros(len(still), dtype=torch.int64, device=text.ids.device)
            for found in self._rounds(text, self.depth):
                right = self._ids_of(found.logits) == found.labels
                still[: len(right)] &= right
                still[len(right) :] = False
                counts += still
        return counts

    def _ids_of(self, logits: torch.Tensor) -> torch.Tensor:
        return self._ids.to(logits.device)[logits.argmax(-1)]

    @staticmethod
    def _num_roots(text: TextFeatures) -> int:
        """Roots num_prompt, ..., L - 2; the last real position lies before the root."""
        return len(text) - 1 - text.num_prompt

    def _rounds(self, text: TextFeatures, num_steps: int) -> Iterator[_Round]:
        """Rows shrink by one a step: near the end of the text fewer tokens are left."""
        layer = self._body.layers[0]
        assert isinstance(layer, FirstLayer)
        attention = layer.self_attn
        fused = self._body.fuse(text.taps[:-1].float())
        real = torch.arange(len(text) - 1, device=text.ids.device)
        entered, residual = layer.enter(embedding(text.ids[1:], self._embedding), fused)
        turns = self._rope.turns(real)
        context = attention.keys(entered, turns), attention.values(entered)
        roots = torch.arange(text.num_prompt - 1, len(text) - 2, device=text.ids.device)
        is_seen = real[None] <= roots[:, None]
        own_keys, own_values = [], []
        feature = fused
        for step in range(num_steps):
            num = len(roots) - step
            if num <= 0:
                return
            at = roots[:num]
            if step == 0:
                entered, residual = entered[at], residual[at]
            else:
                feature = feature[:num]
                token = text.ids[at + 1 + step]
                entered, residual = layer.enter(embedding(token, self._embedding), feature)
            own_turns = self._rope.turns(at + step)
            if step > 0:
                own_keys.append(attention.keys(entered, own_turns))
                own_values.append(attention.values(entered))
            own = tuple(_stacked(part, num, context[0]) for part in (own_keys, own_values))
            query = attention.queries(entered, own_turns)
            attended = attend_own(query, context, is_seen[:num], (own[0], own[1]), attention.scale)
            out = layer.leave(residual, attended)
            feature, logits = self._body.finish(out)
            yield _Round(step, logits, text.ids[at + 2 + step])

    def checkpoint(self) -> tuple[Mapping[str, Any], Mapping[str, torch.Tensor]]:
        """SpecForge's layout: SafeAILab's tensors, and config keys that say where to tap."""
        facts = self._facts
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            **self._table(),
            "draft_vocab_size": len(self._ids),
            "target_hidden_size": facts.hidden_size,
            "norm_output": True,
            "eagle_config": {
                "eagle_aux_hidden_state_layer_ids": _layer_ids(facts.boundaries),
                "use_aux_hidden_state": True,
            },
        }
        weights = {
            name.replace("layers.0.", "midlayer."): weight.detach().cpu().bfloat16()
            for name, weight in self._body.state_dict().items()
        }
        return config, weights | d2t_t2d(self._ids.cpu(), facts.vocab_size)


def _stacked(parts: Sequence[torch.Tensor], num: int, like: torch.Tensor) -> torch.Tensor:
    """[num, steps, key heads, width] of the rounds that are left; no step at first."""
    if not parts:
        return like.new_zeros(num, 0, *like.shape[1:])
    return torch.stack([part[:num] for part in parts], dim=1)


def _layer_ids(boundaries: Sequence[int]) -> list[int]:
    """As SpecForge numbers them: outputs of layers, known by a first 1 (facts: SGLang PR 25454);
    any other first number is read as a boundary."""
    if boundaries[0] == 2:
        return [boundary - 1 for boundary in boundaries]
    return list(boundaries)
