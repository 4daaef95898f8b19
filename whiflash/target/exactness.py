"""Whether a row's result depends on what is beside it: found by trying, per dtype and machine.

The reference is decoding one token at a time. Hidden states and logits of the same rows in chains,
trees, mixed batches and other prefill chunks are compared with it bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.draft import DraftTree
from whiflash.core.protocols import ForwardSegment, SequenceCache
from whiflash.target.target import LocalTarget

BITWISE = "bitwise"
EPSILON = "epsilon"
# 64-key blocks of attention are crossed at 64, 128, 192, 256: prefix and drafts lie on both sides.
_PREFIX = 120
_STEPS, _QUICK_STEPS = 17, 9
_CHUNKED = 256
PROBE_TOKENS = _CHUNKED + 64
_CHAINS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Exactness:
    """failed: names of the checks whose rows were not bit-equal; empty means bitwise."""

    failed: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return EPSILON if self.failed else BITWISE


Ids = npt.NDArray[np.int64]
Rows = tuple[torch.Tensor, torch.Tensor]
Part = tuple[SequenceCache, Sequence[int] | Ids, Sequence[int] | None]


def find_exactness(
    target: LocalTarget, text_ids: Sequence[int], *, quick: bool = True, thorough: bool = True
) -> Exactness:
    """Runs the quick checks (a chain and a tree), the thorough ones, or both, on `text_ids`, which
    must hold PROBE_TOKENS ids. The quick ones alone stop at the first that fails."""
    num_steps = _STEPS if thorough else _QUICK_STEPS
    probe = _Probe(target, np.asarray(text_ids[:PROBE_TOKENS], np.int64), num_steps)
    checks = (_QUICK if quick else ()) + (_THOROUGH if thorough else ())
    failed: list[str] = []
    for name, check in checks:
        if (thorough or not failed) and not check(probe):
            failed.append(name)
    probe.close()
    return Exactness(tuple(failed))


class _Probe:
    """A text, its prefix in a cache, and the rows that one-at-a-time decoding gives after it."""

    def __init__(self, target: LocalTarget, ids: Ids, num_steps: int) -> None:
        self.target = target
        self.ids = ids
        self.prefix = target.new_cache(len(ids))
        self.run((self.prefix, ids[:_PREFIX], None))
        self.prefix.commit(range(_PREFIX))
        self._caches: list[SequenceCache] = [self.prefix]
        self.text = ids[_PREFIX : _PREFIX + num_steps]
        self.alone = self.decode(self.fork(), self.text)

    def close(self) -> None:
        for cache in self._caches:
            cache.release()

    def fork(self) -> SequenceCache:
        """The prefix in a cache of its own."""
        self._caches.append(self.prefix.fork(_PREFIX))
        return self._caches[-1]

    def empty(self) -> SequenceCache:
        self._caches.append(self.target.new_cache(64))
        return self._caches[-1]

    def run(self, *parts: Part) -> list[Rows]:
        """One forward; (hidden, logits) of all rows per part."""
        segments = [
            ForwardSegment(
                cache,
                np.asarray(ids, np.int64),
                None if parents is None else np.asarray(parents, np.int32),
                len(ids),
            )
            for cache, ids, parents in parts
        ]
        output = self.target.forward(segments)
        sizes = [len(segment.token_ids) for segment in segments]
        hidden = torch.split(output.hidden, sizes)
        return list(zip(hidden, torch.split(output.logits, sizes), strict=True))

    def decode(
        self,
        cache: SequenceCache,
        ids: Sequence[int] | Ids,
        chunk: int = 1,
    ) -> Rows:
        """The ids fed `chunk` at a time, all committed."""
        parts: list[Rows] = []
        for start in range(0, len(ids), chunk):
            piece = ids[start : start + chunk]
            parts += self.run((cache, piece, None))
            cache.commit(range(len(piece)))
        hidden, logits = zip(*parts, strict=True)
        return torch.cat(hidden), torch.cat(logits)


def _equal(left: Rows, right: Rows) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def _take(rows: Rows, index: Sequence[int]) -> Rows:
    return rows[0][list(index)], rows[1][list(index)]


def _chains(*sizes: int) -> Callable[[_Probe], bool]:
    def check(probe: _Probe) -> bool:
        return all(
            _equal(
                probe.run((probe.prefix, probe.text[:size], None))[0],
                _take(probe.alone, range(size)),
            )
            for size in sizes
        )

    return check


def _tree(probe: _Probe) -> tuple[list[int], list[int], list[int]]:
    """A 16-row tree (ids, parents) whose trunk is the text, and the rows of the trunk. Siblings
    come before the trunk, so that its rows lie apart."""
    ids, parents, trunk = [int(probe.text[0])], [-1], [0]
    for step in range(1, 6):
        for token in (int(probe.ids[step]), int(probe.ids[step + 7]), int(probe.text[step])):
            ids.append(token)
            parents.append(trunk[-1])
        trunk.append(len(ids) - 1)
    return ids, parents, trunk


def _tree_trunk(probe: _Probe) -> bool:
    """Trunk rows equal decoding; committing the trunk and going on equals it too."""
    ids, parents, trunk = _tree(probe)
    cache = probe.fork()
    rows = probe.run((cache, ids, parents))[0]
    cache.commit(trunk)
    after = probe.decode(cache, probe.text[len(trunk) :])
    return _equal(_take(rows, trunk), _take(probe.alone, range(len(trunk)))) and _equal(
        after, _take(probe.alone, range(len(trunk), len(probe.text)))
    )


def _tree_branches(probe: _Probe) -> bool:
    """Every node of a tree equals decoding its own path."""
    ids, parents, trunk = _tree(probe)
    rows = probe.run((probe.prefix, ids, parents))[0]
    draft = DraftTree.from_parents(ids[1:], parents[1:])
    leaves = [row for row in range(len(ids)) if row not in trunk]
    return all(
        _equal(
            _take(rows, [leaf]),
            _take(probe.decode(probe.fork(), [ids[0], *draft.path_tokens(leaf)]), [-1]),
        )
        for leaf in leaves[::5]
    )


def _mixed(probe: _Probe) -> bool:
    """A chain, a tree, single rows and a prefill chunk in one forward, in several orders."""
    ids, parents, trunk = _tree(probe)
    chain, tree, single, other = (probe.fork() for _ in range(4))
    parts: dict[str, Part] = {
        "other": (other, probe.ids[5:6], None),
        "chain": (chain, probe.text[:8], None),
        "tree": (tree, ids, parents),
        "prefill": (probe.empty(), probe.ids[:30], None),
        "single": (single, probe.text[:1], None),
    }
    expected = {"chain": range(8), "single": range(1)}
    for order in _orders(list(parts)):
        rows = dict(zip(order, probe.run(*(parts[name] for name in order)), strict=True))
        equal = [
            _equal(rows[name], _take(probe.alone, rows_))
            for name, rows_ in expected.items()
            if name in rows
        ]
        if "tree" in rows:
            equal.append(_equal(_take(rows["tree"], trunk), _take(probe.alone, range(len(trunk)))))
        if not all(equal):
            return False
    return True


def _orders(names: list[str]) -> Iterator[list[str]]:
    yield names
    yield names[::-1]
    yield [name for name in names if name != "prefill"]


def _prefill_chunks(probe: _Probe) -> bool:
    """Prefill in pieces of other sizes, down to single rows, leaves the same rows and cache."""
    start = probe.ids[:24]
    rows = probe.decode(probe.empty(), start, 1)
    if not all(_equal(probe.decode(probe.empty(), start, size), rows) for size in (7, 16, 24)):
        return False
    long, after = probe.ids[:_CHUNKED], probe.ids[_CHUNKED : _CHUNKED + 2]
    fine, coarse, odd = (probe.empty() for _ in range(3))
    expected = probe.decode(fine, long, 16)
    alike = _equal(probe.decode(coarse, long, _CHUNKED), expected)
    alike = alike and _equal(probe.decode(odd, long, 100), expected)
    following = probe.decode(fine, after)
    return alike and all(_equal(probe.decode(cache, after), following) for cache in (coarse, odd))


_QUICK: tuple[tuple[str, Callable[[_Probe], bool]], ...] = (
    ("chain of 8", _chains(8)),
    ("tree of 16", _tree_trunk),
)
_THOROUGH: tuple[tuple[str, Callable[[_Probe], bool]], ...] = (
    ("chains of 2, 4 and 16", _chains(2, 4, 16)),
    ("tree branches", _tree_branches),
    ("mixed batch", _mixed),
    ("other prefill chunks", _prefill_chunks),
)
