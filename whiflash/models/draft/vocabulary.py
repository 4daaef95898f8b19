"""A drafter's own, smaller vocabulary, and whether drafter and target mean the same ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from whiflash.core.errors import ModelError
from whiflash.models.tokenizer import HFTokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


class DraftVocabulary:
    """Draft ids 0..size-1 and the target ids they stand for, strictly increasing.

    target_ids: int64 [size]; `is_whole` where both vocabularies are one.
    """

    def __init__(self, target_ids: npt.NDArray[np.int64], target_size: int) -> None:
        self.target_ids = target_ids
        self.target_size = target_size
        self.is_whole = len(target_ids) == target_size

    def __len__(self) -> int:
        return len(self.target_ids)

    @classmethod
    def whole(cls, target_size: int) -> DraftVocabulary:
        return cls(np.arange(target_size, dtype=np.int64), target_size)

    @classmethod
    def of_offsets(
        cls,
        d2t: torch.Tensor | None,
        t2d: torch.Tensor | None,
        draft_size: int,
        target_size: int,
        source: Path,
    ) -> DraftVocabulary:
        """From d2t (target id = draft id + d2t, [draft_size]) and t2d (whether a target id has a
        draft id, [target_size]). Raises ModelError where they contradict each other or config."""
        if d2t is None or t2d is None:
            return cls._without(d2t, t2d, draft_size, target_size, source)
        if tuple(d2t.shape) != (draft_size,) or tuple(t2d.shape) != (target_size,):
            raise ModelError(
                f"{source}: d2t {tuple(d2t.shape)} and t2d {tuple(t2d.shape)} do not fit "
                f"{draft_size} draft ids and {target_size} target ids"
            )
        ids = torch.arange(draft_size) + d2t.to(torch.int64)
        marked = torch.nonzero(t2d.to(torch.bool)).flatten()
        if not torch.equal(ids, marked):
            raise ModelError(
                f"{source}: d2t and t2d disagree about which target ids can be drafted; the "
                "checkpoint is damaged"
            )
        return cls(ids.numpy(), target_size)

    @classmethod
    def _without(
        cls,
        d2t: torch.Tensor | None,
        t2d: torch.Tensor | None,
        draft_size: int,
        target_size: int,
        source: Path,
    ) -> DraftVocabulary:
        if d2t is not None or t2d is not None or draft_size != target_size:
            raise ModelError(
                f"{source}: {draft_size} draft ids for {target_size} target ids need both d2t and "
                "t2d; the checkpoint lacks them"
            )
        return cls.whole(target_size)


def require_same_ids(
    folder: Path, draft_vocab_size: int, target_vocab_size: int, target_fingerprint: str
) -> None:
    """Raises ModelError unless the drafter was made for the target's ids. A checkpoint without a
    tokenizer (most have none) is held to the size alone.

    draft_vocab_size: the config's vocab_size, which counts the *target's* ids.
    """
    if draft_vocab_size != target_vocab_size:
        raise ModelError(
            f"{folder} was made for a target of {draft_vocab_size} ids, this one has "
            f"{target_vocab_size}; take the target it was made for"
        )
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return
    own = HFTokenizer.load(folder).fingerprint
    if target_fingerprint and own != target_fingerprint:
        raise ModelError(
            f"the tokenizer in {folder} is not the target's ({own} against {target_fingerprint}); "
            "take the target it was made for"
        )
