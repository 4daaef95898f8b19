"""A drafter that breaks every rule it can: the engine must drop, count and go on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow
from whiflash.testing.drafters import ScriptedDrafter, random_tree


class HostileError(RuntimeError):
    """What a hostile drafter raises on purpose."""


class HostileDrafter(ScriptedDrafter):
    """Cycles through kinds of bad proposals, by the seed and the context.

    Kinds: ids beyond the vocabulary (V itself among them, facts of llama.cpp #28158), negative
    ids, equal siblings, nodes behind EOS, more nodes than asked, deeper than asked, survival that
    is NaN or above 1, parents that come after their children, arrays of unequal length.
    With `raises`, every fifth call fails, and some calls return too few trees.
    `counts` says how often each kind was played.
    """

    KINDS = (
        "beyond", "negative", "twins", "behind_eos", "many", "deep", "survival", "parents", "ragged"
    )  # fmt: skip

    def __init__(
        self,
        vocab_size: int,
        eos_id: int,
        seed: int = 0,
        raises: bool = False,
        name: str = "hostile",
    ) -> None:
        super().__init__(name)
        self._vocab_size = vocab_size
        self._eos_id = eos_id
        self._seed = seed
        self._raises = raises
        self._num_calls = 0
        self.counts = dict.fromkeys((*self.KINDS, "raised", "short"), 0)

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        self._num_calls += 1
        trees = super().propose(rows)
        if self._raises and self._num_calls % 5 == 0:
            self.counts["raised"] += 1
            raise HostileError("this drafter fails on purpose")
        if self._raises and self._num_calls % 5 == 3:
            self.counts["short"] += 1
            return trees[:-1]
        return trees

    def draft(self, row: DraftRow) -> DraftTree:
        rng = random.Random(f"{self._seed} {row.context.tolist()}")
        kind = rng.choice(self.KINDS)
        self.counts[kind] += 1
        if kind == "many":
            return random_tree(rng, self._vocab_size, 4 * row.max_nodes + 1, row, is_tree=True)
        if kind == "deep":
            return self._chain(rng, row.max_depth + 3)
        base = self._chain(rng, min(row.max_nodes, row.max_depth))
        return getattr(self, f"_{kind}")(base, rng)  # type: ignore[no-any-return]

    def _chain(self, rng: random.Random, length: int) -> DraftTree:
        return DraftTree.chain([rng.randrange(self._vocab_size) for _ in range(length)])

    def _beyond(self, base: DraftTree, rng: random.Random) -> DraftTree:
        bad = rng.choice((self._vocab_size, self._vocab_size + 7, 2**31 - 1))
        return _with_token(base, rng.randrange(len(base)), bad)

    def _negative(self, base: DraftTree, rng: random.Random) -> DraftTree:
        return _with_token(base, rng.randrange(len(base)), rng.choice((-1, -100, -(2**31))))

    def _behind_eos(self, base: DraftTree, rng: random.Random) -> DraftTree:
        return _with_token(base, rng.randrange(max(1, len(base) - 1)), self._eos_id)

    def _twins(self, base: DraftTree, rng: random.Random) -> DraftTree:
        token = int(rng.choice(base.tokens))
        return DraftTree.from_parents([token] * len(base), [0] * len(base))

    def _survival(self, base: DraftTree, rng: random.Random) -> DraftTree:
        bad = np.full(len(base), rng.choice((float("nan"), 7.0, -1.0, float("inf"))), np.float32)
        return DraftTree(base.tokens, base.parents, base.depths, bad)

    def _parents(self, base: DraftTree, rng: random.Random) -> DraftTree:
        bad = base.parents.copy()
        bad[rng.randrange(len(base))] = rng.choice((-3, len(base), len(base) + 9))
        return DraftTree(base.tokens, bad, base.depths, base.survival)

    def _ragged(self, base: DraftTree, rng: random.Random) -> DraftTree:
        num_lost = rng.randint(1, len(base))
        return DraftTree(base.tokens, base.parents[:-num_lost], base.depths, base.survival)


def _with_token(tree: DraftTree, place: int, token: int) -> DraftTree:
    tokens = tree.tokens.copy()
    tokens[place] = token
    return DraftTree(tokens, tree.parents, tree.depths, tree.survival)
