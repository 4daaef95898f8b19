"""Draft ids: the frequent ones, the end of text always, tables that the loader accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.errors import ConfigError
from whiflash.models.draft.vocabulary import DraftVocabulary
from whiflash.training.drafters.mask import choose_mask_id
from whiflash.training.drafters.vocabulary import d2t_t2d, draft_ids
from whiflash.training.features.facts import TargetFacts

FACTS = TargetFacts(
    name="t", fingerprint="f", tokenizer="k", architecture="a", boundaries=(2,), dtype="float32",
    num_layers=2, hidden_size=8, intermediate_size=8, num_heads=1, num_kv_heads=1, head_width=8,
    norm_eps=1e-6, rope={}, vocab_size=20, context_limit=64, special_ids=(3, 0, 1, 2),
)  # fmt: skip


@given(st.lists(st.integers(0, 19), min_size=1, max_size=60), st.integers(1, 25))
def test_the_most_frequent_ids_and_the_end(answer: list[int], size: int) -> None:
    ids, coverage = draft_ids([torch.tensor(answer)], FACTS, size)
    chosen = ids.tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(size, 20)
    assert 3 in chosen
    left = [answer.count(i) for i in range(20) if i not in chosen]
    kept = [answer.count(i) for i in chosen if i != 3]
    assert not kept or max(left, default=0) <= min(kept)
    assert coverage == pytest.approx(sum(answer.count(i) for i in chosen) / len(answer))


@given(st.sets(st.integers(0, 19), min_size=1))
def test_the_loader_reads_the_tables(chosen: set[int]) -> None:
    ids = torch.tensor(sorted(chosen))
    tables = d2t_t2d(ids, 20)
    read = DraftVocabulary.of_offsets(tables["d2t"], tables["t2d"], len(ids), 20, Path("x"))
    assert read.target_ids.tolist() == sorted(chosen)


def test_the_mask_is_the_last_special_id_that_no_text_holds() -> None:
    assert choose_mask_id([torch.tensor([5, 2, 6])], FACTS, None) == 1
    assert choose_mask_id([], FACTS, 7) == 7
    with pytest.raises(ConfigError, match="beyond the 20 ids"):
        choose_mask_id([], FACTS, 20)
    with pytest.raises(ConfigError, match="--mask-id"):
        choose_mask_id([], replace(FACTS, special_ids=(3,)), None)
