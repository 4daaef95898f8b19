"""How much memory is taken when nobody says: what can be used, half of what is free at most."""

from __future__ import annotations

from typing import Any

import pytest

from whiflash.config import EngineConfig
from whiflash.engine import budget
from whiflash.engine.budget import memory_budget


def test_what_is_asked_for_is_taken(toy: Any) -> None:
    found = memory_budget(EngineConfig.of(model="toy", memory=5 << 20), toy.target)
    assert found.num_bytes == 5 << 20
    assert "asked for" in found.chosen_by
    assert found.index_bytes == (5 << 20) // 8


def test_a_small_model_takes_no_more_than_a_full_batch_can_use(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_bytes", lambda _: 1 << 40)
    few, many = (
        memory_budget(EngineConfig.of(model="toy", max_batch=rows), toy.target) for rows in (2, 8)
    )
    longest = toy.target.cache_bytes(toy.target.info.context_limit)
    assert 2 * longest < few.num_bytes < 1 << 39
    assert many.num_bytes == pytest.approx(4 * few.num_bytes, rel=1e-3)
    left = few.num_bytes - few.index_bytes
    assert left * (1 - budget.DRAFT_SHARE) >= 2 * longest
    assert "2 sequences" in few.chosen_by


def test_a_full_machine_gives_half_of_what_is_free(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_bytes", lambda _: 1 << 20)
    found = memory_budget(EngineConfig.of(model="toy"), toy.target)
    assert found.num_bytes == 1 << 19
    assert found.chosen_by == "half of the free memory"
