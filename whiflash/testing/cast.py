"""The scripted drafters of random scenarios, by name."""

from __future__ import annotations

import random

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import Drafter, Target
from whiflash.core.rows import DraftRow
from whiflash.testing.drafters import OracleDrafter, RandomDrafter, WrongDrafter
from whiflash.testing.hostile import HostileDrafter
from whiflash.testing.truth import Truth

RETRIEVAL = "retrieval"
SCRIPTED = ("oracle", "oracle_tree", "half_true", "wrong", "random", "random_chain", "hostile")


class HalfTrueDrafter(OracleDrafter):
    """The truth down to a random depth, then a wrong id: rejections at every depth."""

    def __init__(self, truth: Truth, vocab_size: int, rng: random.Random) -> None:
        super().__init__(truth.continuation, vocab_size, max_tokens=16, name="half_true")
        self._rng = rng

    def draft(self, row: DraftRow) -> DraftTree:
        tree = super().draft(row)
        if len(tree) == 0:
            return tree
        tokens = tree.tokens.copy()
        last = len(tokens) - 1
        place = last if self._rng.random() < 0.4 else self._rng.randrange(len(tokens))
        tokens[place] = (tokens[place] + 1) % self._vocab_size
        return DraftTree.chain(tokens, source=self.name)


def scripted_drafter(name: str, rng: random.Random, target: Target, truth: Truth) -> Drafter:
    """`name` is one of SCRIPTED."""
    vocab, seed = target.info.vocab_size, rng.getrandbits(32)
    if name == "oracle":
        return OracleDrafter(truth.continuation, vocab, name=name)
    if name == "oracle_tree":
        return OracleDrafter(truth.continuation, vocab, num_decoys=2, name=name)
    if name == "half_true":
        return HalfTrueDrafter(truth, vocab, rng)
    if name == "wrong":
        return WrongDrafter(truth.continuation, vocab, name=name)
    if name == "random_chain":
        return RandomDrafter(vocab, is_tree=False, seed=seed, name=name)
    if name == "hostile":
        eos = target.info.eos_ids[0]
        return HostileDrafter(vocab, eos, seed, raises=rng.random() < 0.5, name=name)
    return RandomDrafter(vocab, seed=seed, name=name)
