"""Scripted drafters: right, wrong, random and hostile. None of them may change a text."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from whiflash.core.draft import DraftTree
from whiflash.core.rows import DraftRow, Feedback

Continue = Callable[[Sequence[int], int], Sequence[int]]


class ScriptedDrafter(ABC):
    """Base: keeps the book that the Drafter protocol implies and checks the engine against it.

    `log` holds (sequence id, length of the context) of every proposal.
    Raises AssertionError where the engine breaks the protocol.
    """

    def __init__(self, name: str, is_free: bool = False) -> None:
        self._name = name
        self._is_free = is_free
        self.opened: dict[int, str] = {}
        self.closed: set[int] = set()
        self.log: list[tuple[int, int]] = []
        self.feedback: list[Feedback] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_free(self) -> bool:
        return self._is_free

    def open(
        self,
        sequence_id: int,
        namespace: str,
        prompt_ids: npt.NDArray[np.int32],
        prediction_ids: npt.NDArray[np.int32],
    ) -> None:
        assert sequence_id not in self.opened, f"sequence {sequence_id} was opened twice"
        assert prompt_ids.dtype == prediction_ids.dtype == np.int32, "ids must be int32"
        assert len(prompt_ids) > 0, f"sequence {sequence_id} has no prompt"
        self.opened[sequence_id] = namespace

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        for row in rows:
            assert row.sequence_id in self.opened, f"sequence {row.sequence_id} is not open"
            assert row.sequence_id not in self.closed, f"sequence {row.sequence_id} is closed"
            assert row.max_nodes >= 1, "a row without room was asked to draft"
            assert row.max_depth >= 1, "a row without depth was asked to draft"
            self.log.append((row.sequence_id, len(row.context)))
        return [self.draft(row) for row in rows]

    @abstractmethod
    def draft(self, row: DraftRow) -> DraftTree:
        """The proposal for one row."""

    def matched(self, sequence_id: int) -> int:
        assert sequence_id in self.opened, f"sequence {sequence_id} is not open"
        return 0

    def learn(self, feedback: Sequence[Feedback]) -> None:
        self.feedback.extend(feedback)

    def close(self, sequence_id: int) -> None:
        self.closed.add(sequence_id)

    def check_integrity(self) -> None:
        scored = {feedback.row.sequence_id for feedback in self.feedback}
        assert scored <= self.opened.keys(), "feedback for a sequence that was never opened"
        drafted = {sequence_id for sequence_id, _ in self.log}
        assert drafted <= self.opened.keys(), "a draft for a sequence that was never opened"


class OracleDrafter(ScriptedDrafter):
    """Proposes the true continuation, all of it accepted.

    continuation(context, count) gives up to `count` ids that the target will emit behind
    `context` (prompt and generated ids). With `num_decoys`, every node of the true path gets that
    many wrong siblings in front of it. `max_tokens` bounds the path.
    """

    def __init__(
        self,
        continuation: Continue,
        vocab_size: int,
        max_tokens: int = 8,
        num_decoys: int = 0,
        name: str = "oracle",
    ) -> None:
        super().__init__(name)
        self._continuation = continuation
        self._vocab_size = vocab_size
        self._max_tokens = max_tokens
        self._num_decoys = num_decoys

    def draft(self, row: DraftRow) -> DraftTree:
        width = 1 + self._num_decoys
        count = min(self._max_tokens, row.max_depth, row.max_nodes // width)
        truth = self._continuation(row.context.tolist(), count)[:count] if count else ()
        tokens: list[int] = []
        parents: list[int] = []
        parent = 0
        for token in truth:
            decoys = [(token + 1 + i) % self._vocab_size for i in range(self._num_decoys)]
            tokens += [*decoys, token]
            parents += [parent] * width
            parent = len(tokens)
        return DraftTree.from_parents(tokens, parents, source=self.name)


class WrongDrafter(ScriptedDrafter):
    """Proposes chains whose first id is not what the target will emit: nothing is accepted."""

    def __init__(
        self,
        continuation: Continue,
        vocab_size: int,
        num_tokens: int = 4,
        name: str = "wrong",
    ) -> None:
        super().__init__(name)
        self._continuation = continuation
        self._vocab_size = vocab_size
        self._num_tokens = num_tokens

    def draft(self, row: DraftRow) -> DraftTree:
        truth = self._continuation(row.context.tolist(), 1)
        if not truth:
            return DraftTree.empty()
        wrong = (truth[0] + 1) % self._vocab_size
        count = min(self._num_tokens, row.max_nodes, row.max_depth)
        return DraftTree.chain([wrong] * count, source=self.name)


class FixedDrafter(ScriptedDrafter):
    """Plays back a script: one tree per proposal of a sequence, then empty trees."""

    def __init__(self, script: Sequence[DraftTree], name: str = "fixed") -> None:
        super().__init__(name)
        self._script = list(script)
        self._place: dict[int, int] = {}

    def draft(self, row: DraftRow) -> DraftTree:
        place = self._place.get(row.sequence_id, 0)
        self._place[row.sequence_id] = place + 1
        return self._script[place] if place < len(self._script) else DraftTree.empty()


class RandomDrafter(ScriptedDrafter):
    """Chains or trees of 0 to the allowed number of nodes, a function of (seed, context).

    Ids are drawn from what the context holds half of the time, so that some are accepted.
    """

    def __init__(
        self, vocab_size: int, is_tree: bool = True, seed: int = 0, name: str = "random"
    ) -> None:
        super().__init__(name)
        self._vocab_size = vocab_size
        self._is_tree = is_tree
        self._seed = seed

    def draft(self, row: DraftRow) -> DraftTree:
        rng = random.Random(f"{self._seed} {row.context.tolist()}")
        limit = row.max_nodes if self._is_tree else min(row.max_nodes, row.max_depth)
        return random_tree(rng, self._vocab_size, rng.randint(0, limit), row, self._is_tree)


def random_tree(
    rng: random.Random, vocab_size: int, num_nodes: int, row: DraftRow, is_tree: bool
) -> DraftTree:
    """A well-formed tree: distinct siblings, at most num_nodes nodes and row.max_depth levels."""
    tokens: list[int] = []
    parents: list[int] = []
    depths = [0]
    taken: set[tuple[int, int]] = set()
    for _ in range(num_nodes):
        parent = rng.randint(0, len(tokens)) if is_tree else len(tokens)
        is_known = rng.random() < 0.5
        token = int(rng.choice(row.context)) if is_known else rng.randrange(vocab_size)
        if depths[parent] >= row.max_depth or (parent, token) in taken:
            continue
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
        depths.append(depths[parent] + 1)
    survival = [rng.random() for _ in tokens]
    return DraftTree.from_parents(tokens, parents, survival, source="random")
