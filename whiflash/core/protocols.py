"""The contracts between the parts. Implementations are injected; nobody imports a sibling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from whiflash.core.constraint import ConstraintSpec
from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.masks import TokenMasks
from whiflash.core.rows import CatchUp, DraftRow, Feedback, Outcome, Prediction, RouteRow

if TYPE_CHECKING:
    import torch


class SequenceCache(Protocol):
    """Target KV of one sequence: `length` committed positions, and behind them the scratch rows
    of the last forward until `commit` keeps some of them."""

    @property
    def length(self) -> int:
        """Committed tokens (S)."""

    @property
    def num_bytes(self) -> int:
        """Memory held now."""

    def commit(self, rows: Sequence[int]) -> None:
        """Keep scratch rows (indices within this sequence's last `ForwardSegment`, a root-to-node
        path in order) as positions length, length+1, ...; drop the others. Moving is a bit copy.
        An empty sequence drops all scratch. Raises ValueError on a row that was not written."""

    def truncate(self, length: int) -> None:
        """Forget committed positions from `length` on. Drops scratch."""

    def fork(self, length: int) -> SequenceCache:
        """An independent copy of the first `length` committed positions."""

    def fused_taps(self, weight_hash: str, start: int, stop: int) -> torch.Tensor:
        """[stop - start, fused width], fused taps of committed positions for the drafter of that
        weight hash (`Target.keep_taps`). A view: use it before the next forward."""

    def taps_from(self, weight_hash: str) -> int:
        """First position whose fused tap is kept: 0, but for a drafter that came later; `length`
        where there is none yet."""

    def release(self) -> None:
        """Give the memory back; the cache must not be used afterwards. Idempotent."""

    def check_integrity(self) -> None:
        """Raises AssertionError if an invariant is broken."""


@dataclass(frozen=True, slots=True)
class ForwardSegment:
    """Rows of one sequence in one forward: a prefill chunk, a root, a chain or a tree.

    token_ids: int64 [n].
    parents:   int32 [n], index of the parent row in this segment, -1 for a row that directly
               follows the committed positions; None means a chain (row i follows row i - 1).
    num_logits: logits are asked for the last `num_logits` rows (n for a verify, 1 for the last
               prefill chunk, 0 for the others).
    A row's position is cache.length + its depth (0 for parent -1).
    """

    cache: SequenceCache
    token_ids: npt.NDArray[np.int64]
    parents: npt.NDArray[np.int32] | None = None
    num_logits: int = 0


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """logits: [R, V] in the model's dtype and hidden: [R, h] (after the final norm), the asked
    rows of all segments concatenated in order."""

    logits: torch.Tensor
    hidden: torch.Tensor


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What the plan says about the target. `exactness` is "bitwise" (a row's result does not
    depend on what is beside it, proven by the load-time self-test) or "epsilon"."""

    name: str
    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    context_limit: int
    eos_ids: tuple[int, ...]
    dtype: str
    device: str
    attention: str
    linears: str
    exactness: str
    weight_bytes: int
    cache_bytes_per_token: int
    fingerprint: str
    notes: tuple[str, ...] = ()


class Target(Protocol):
    """The verifier's model. One thread uses it."""

    @property
    def info(self) -> TargetInfo: ...

    @property
    def verify_curve(self) -> CostCurve:
        """Milliseconds of one forward over its number of rows, measured at load."""

    def keep_taps(
        self,
        weight_hash: str,
        boundaries: Sequence[int],
        fuse: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """From now on every cache keeps, beside the KV of each position, what `fuse` makes of its
        taps ([n, boundaries * h] -> [n, fused width]). Caches that are there already have those of
        later positions (`SequenceCache.taps_from`). Between two forwards."""

    def drop_taps(self, weight_hash: str) -> None:
        """Keeps them no longer. Idempotent."""

    def new_cache(self, num_tokens: int) -> SequenceCache:
        """An empty cache with room for `num_tokens` at first; it grows by doubling."""

    def cache_bytes(self, num_tokens: int) -> int:
        """Memory that a cache of that many tokens holds, growth included."""

    def forward(self, segments: Sequence[ForwardSegment]) -> ForwardOutput:
        """Runs all rows in one ragged forward and leaves their K/V as scratch in each cache.
        A cache may appear in one segment only. Rows never influence each other's segment."""


@runtime_checkable
class Drafter(Protocol):
    """Guesses tokens. Nothing a drafter does can change the text. One thread uses it."""

    @property
    def name(self) -> str:
        """The arm's name."""

    @property
    def is_free(self) -> bool:
        """Cheap enough (microseconds) to propose at every root before the arm is chosen."""

    def open(
        self,
        sequence_id: int,
        namespace: str,
        prompt_ids: npt.NDArray[np.int32],
        prediction_ids: npt.NDArray[np.int32],
    ) -> None:
        """A sequence was admitted."""

    def propose(self, rows: Sequence[DraftRow]) -> list[DraftTree]:
        """One tree per row, in order; an empty tree where there is nothing to propose. The
        drafter absorbs by itself what it has not yet seen of `row.context`."""

    def matched(self, sequence_id: int) -> int:
        """Context tokens matched by the last proposal; 0 where that makes no sense."""

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """What became of earlier proposals."""

    def close(self, sequence_id: int) -> None:
        """The sequence finished, for whatever reason. Idempotent."""

    def check_integrity(self) -> None: ...


@runtime_checkable
class TapDrafter(Drafter, Protocol):
    """A drafter that reads the target's residual stream. It holds K/V of the positions it has
    absorbed; the backlog [absorbed, S) is a cursor, its fused taps lie beside the target's KV."""

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Ascending boundaries whose taps it wants, 1 to the target's number of layers."""

    @property
    def weight_hash(self) -> str:
        """Names the weights: fused taps of one hash fit no other."""

    @property
    def context_limit(self) -> int:
        """Most tokens of a sequence; a longer row gets an empty tree."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was resolved at load, for the plan."""

    @property
    def fused_width(self) -> int:
        """Numbers of one fused tap."""

    def fuse(self, taps: torch.Tensor) -> torch.Tensor:
        """[n, boundaries * target width], taps concatenated in order -> [n, fused width]."""

    @property
    def num_bytes(self) -> int:
        """Memory of the K/V of all open sequences."""

    def bytes_for(self, row: CatchUp) -> int:
        """Most memory that the K/V of the row's sequence take once the row is absorbed and a round
        was drafted from it."""

    def absorb(self, rows: Sequence[CatchUp]) -> None:
        """Make K/V of the rows' positions in one batched call, a sequence at most once. Raises
        ValueError on a range that does not start at `absorbed`, or on a sequence not open."""

    def absorbed(self, sequence_id: int) -> int:
        """First position that is not absorbed yet; 0 for a sequence that is not open."""

    def crop(self, sequence_id: int, length: int) -> None:
        """Only the first `length` tokens still hold: forget what depends on later ones. Then
        `absorbed` is at most `length`, wherever the drafter's window began."""


class Policy(Protocol):
    """Chooses arms from signals. It cannot change the text."""

    @property
    def name(self) -> str: ...

    def predict(self, rows: Sequence[RouteRow]) -> list[Prediction]:
        """One prediction per row, in order."""

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """The rounds that came of the last choice."""


class TokenConstraint(Protocol):
    """A grammar over token ids and how far one sequence has come in it. One thread uses it."""

    @property
    def is_ended(self) -> bool:
        """An end-of-text id was consumed: nothing may follow."""

    def advance(self, token_id: int) -> bool:
        """Consume one id; False (and no change) if the grammar does not allow it."""

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` advances."""

    def masks(self, tree: DraftTree) -> TokenMasks:
        """Allowed ids at the root and at every node, each with its own path, in one call. The
        state does not change. End-of-text ids are allowed only where the grammar may end."""


class CompiledConstraint(Protocol):
    """A grammar made ready for one vocabulary. Immutable; threads may share it."""

    def start(self) -> TokenConstraint:
        """A sequence that has consumed nothing."""


class ConstraintCompiler(Protocol):
    """Makes grammars of what requests demand. Threads may share it."""

    def compile(self, spec: ConstraintSpec) -> CompiledConstraint:
        """May take hundreds of milliseconds the first time: never on the engine's thread. Raises
        InvalidRequestError where the demand cannot be honoured exactly."""

    def close(self) -> None:
        """No more compilations. Idempotent."""


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    @property
    def fingerprint(self) -> str: ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, special tokens in it recognised, none added."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out."""

    def id_to_token(self, token_id: int) -> str | None: ...
