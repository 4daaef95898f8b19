"""What becomes one segment: the text of its runs, gathered, cut to what is wanted, sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whiflash.trajectories.sealed.file import SegmentData
from whiflash.trajectories.sealed.ledger import Directory, Mask, Run
from whiflash.trajectories.sealed.text import (
    TOKEN_BYTES,
    Text,
    copy_runs,
    hash_runs,
    sorted_order,
    write_runs,
)

MAX_REPEATS = 8  # identical runs beyond this many teach nothing (facts: retrieval, 3.3)
Part = tuple[Directory, Text, Mask]
"""Runs of a text, and which of them are wanted."""


def part_of_runs(runs: Sequence[Run]) -> Part:
    """All of the runs, in their order."""
    directory = Directory.of_runs(runs)
    text = np.empty(TOKEN_BYTES * directory.num_tokens, np.uint8)
    tokens = np.concatenate([run.tokens for run in runs]).astype(np.int32, copy=False)
    write_runs(tokens, directory.ends, text)
    return directory, text, np.ones(len(runs), bool)


def without_repeats(parts: Sequence[Part]) -> list[Mask]:
    """The masks of the parts with the newest MAX_REPEATS of identical runs left alone."""
    hashes = np.concatenate([hash_runs(text, directory.ends) for directory, text, _ in parts])
    is_kept = np.concatenate([mask for _, _, mask in parts])
    kept = np.flatnonzero(is_kept)[::-1]  # newest first
    order = np.argsort(hashes[kept], kind="stable")
    ranked = hashes[kept][order]
    begins = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    ranks = np.arange(len(ranked)) - np.repeat(begins, np.diff([*begins, len(ranked)]))
    is_kept[kept[order][ranks >= MAX_REPEATS]] = False
    borders = np.cumsum([len(mask) for _, _, mask in parts])[:-1]
    return np.split(is_kept, borders)


def sealed_data(parts: Sequence[Part], replaces: tuple[int, ...]) -> SegmentData:
    """The wanted runs of all parts, sorted. Takes about 20 bytes a token while it works; nearly
    all of it without the GIL."""
    directory = Directory.joined([(of_part, mask) for of_part, _, mask in parts])
    text = np.empty(TOKEN_BYTES * directory.num_tokens, np.uint8)
    done = 0
    for of_part, source, mask in parts:
        done = copy_runs(source, of_part.ends, mask, text, done)
    assert done == directory.num_tokens, (done, directory.num_tokens)
    return SegmentData(directory, text, sorted_order(text, len(directory)), replaces)
