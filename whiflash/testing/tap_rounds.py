"""Rounds of one sequence by the book: a transformers model run plainly, a drafter that reads taps.

Slow on purpose: no cache, the whole sequence in every forward, so that nothing but the drafter is
under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from whiflash.core.draft import DraftTree
from whiflash.core.params import SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.core.rows import CatchUp, DraftRow
from whiflash.drafters.scores import draft_sampling
from whiflash.sampling.acceptance import walk
from whiflash.sampling.noise import derive_key
from whiflash.sampling.sampler import SequenceSampler

NAMESPACE = "tests"
_GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class PlainForward:
    """Rows of all positions, then of the tree's nodes. logits: [n, V]; streams: [n, h] per
    boundary, 0 (embedding) to the number of layers - 1."""

    logits: torch.Tensor
    streams: tuple[torch.Tensor, ...]

    def taps(self, boundaries: Sequence[int]) -> torch.Tensor:
        """[n, boundaries * h], in the order of `boundaries`."""
        return torch.cat([self.streams[boundary] for boundary in boundaries], dim=-1)


class PlainTarget:
    """A causal model in eager attention."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval().requires_grad_(False)

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> PlainTarget:
        return cls(
            AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
        )

    def forward(self, ids: Sequence[int], tree: DraftTree | None = None) -> PlainForward:
        """`ids`, and the nodes of a tree whose root is the last of them."""
        nodes = DraftTree.empty() if tree is None else tree
        root, total = len(ids) - 1, len(ids) + len(nodes)
        is_seen = torch.zeros(total, total, dtype=torch.bool)
        is_seen[: len(ids), : len(ids)] = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        for node, parent in enumerate(nodes.parents.tolist()):
            is_seen[root + 1 + node] = is_seen[root + parent]
            is_seen[root + 1 + node, root + 1 + node] = True
        mask = torch.zeros(1, 1, total, total, dtype=self.model.dtype)
        mask[0, 0][~is_seen] = torch.finfo(self.model.dtype).min
        positions = [*range(len(ids)), *(root + nodes.depths).tolist()]
        with torch.inference_mode():
            output = self.model(
                input_ids=torch.tensor([[*ids, *nodes.tokens.tolist()]]),
                position_ids=torch.tensor([positions]),
                attention_mask=mask,
                output_hidden_states=True,
                use_cache=False,
            )
        return PlainForward(
            output.logits[0], tuple(stream[0] for stream in output.hidden_states[:-1])
        )


@dataclass(slots=True)
class TapRounds:
    """One sequence that `drafter` may draft for; it is opened and its prompt is run at once.

    ids: prompt and all that was emitted, the root last. fused: [S, width]. accepted: accepted
    drafts per round. sequence_id tells sequences of one drafter apart.
    """

    target: PlainTarget
    drafter: TapDrafter
    prompt: Sequence[int]
    params: SamplingParams = _GREEDY
    sequence_id: int = 0
    ids: list[int] = field(init=False)
    fused: torch.Tensor = field(init=False)
    accepted: list[int] = field(init=False, default_factory=list)
    _sampler: SequenceSampler = field(init=False)

    def __post_init__(self) -> None:
        prompt = [int(token) for token in self.prompt]
        vocab_size = self.target.model.config.vocab_size
        key = derive_key(self.params.seed or 0, 0, prompt)
        self._sampler = SequenceSampler(self.params, key, prompt, vocab_size, ())
        none = np.zeros(0, np.int32)
        self.drafter.open(self.sequence_id, NAMESPACE, np.array(prompt, np.int32), none)
        output = self.target.forward(prompt)
        self.fused = self.drafter.fuse(output.taps(self.drafter.boundaries))
        self.ids = [*prompt, self._sampler.sample(output.logits[-1], [])]

    @property
    def generated(self) -> list[int]:
        return self.ids[len(self.prompt) :]

    def backlog(self, end: int | None = None) -> CatchUp | None:
        """What the drafter has not absorbed of the positions up to `end` (all committed ones)."""
        start = self.drafter.absorbed(self.sequence_id)
        end = len(self.ids) - 1 if end is None else end
        if start >= end:
            return None
        ids = np.array(self.ids[start : end + 1], np.int32)
        return CatchUp(self.sequence_id, start, ids, self.fused[start:end])

    def absorb(self, end: int | None = None) -> None:
        row = self.backlog(end)
        if row is not None:
            self.drafter.absorb([row])

    def row(self, max_nodes: int = 64, max_depth: int = 64) -> DraftRow:
        key = derive_key(self.params.seed or 0, 0, self.prompt)
        sampling = draft_sampling(self.params, key, len(self.generated))
        context = np.array(self.ids, np.int32)
        return DraftRow(self.sequence_id, NAMESPACE, context, max_nodes, max_depth, sampling)

    def verify(self, tree: DraftTree) -> list[int]:
        """Rows of the accepted path, root first; the sequence moves on."""
        output = self.target.forward(self.ids, tree)
        first = len(self.ids) - 1
        outcome = walk(
            tree,
            lambda row, drafted: self._sampler.sample(
                output.logits[first + row], [*self.generated, *drafted]
            ),
        )
        rows = list(outcome.rows)
        taps = output.taps(self.drafter.boundaries)[[first + row for row in rows]]
        self.fused = torch.cat([self.fused, self.drafter.fuse(taps)])
        self.ids += outcome.tokens
        self.accepted.append(outcome.accepted)
        return rows

    def round(self, max_nodes: int = 64, max_depth: int = 64) -> DraftTree:
        """Catch up, draft, verify."""
        self.absorb()
        [tree] = self.drafter.propose([self.row(max_nodes, max_depth)])
        self.verify(tree)
        return tree

    def plain_round(self) -> None:
        """A round of another arm, or of none: the drafter hears nothing."""
        self.verify(DraftTree.empty())

    def run(self, num_tokens: int, max_nodes: int = 64, max_depth: int = 64) -> list[int]:
        """Rounds until `num_tokens` are generated; prompt and exactly so many ids."""
        while len(self.generated) < num_tokens:
            self.round(max_nodes, max_depth)
        return self.ids[: len(self.prompt) + num_tokens]
