"""Draft K/V: what is kept, what is scratch, against a plain list."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.models.draft.cache import DraftCache, DraftCacheShape

SHAPE = DraftCacheShape(2, 3, 4, torch.float32, torch.device("cpu"))


def rows(first: int, count: int, layer: int) -> torch.Tensor:
    """[count, heads, width]; row i is filled with its number."""
    numbers = torch.arange(first, first + count).float()[:, None, None] + 1000.0 * layer
    return numbers.expand(count, SHAPE.num_heads, SHAPE.width)


def numbers(cache: DraftCache, layer: int, num_scratch: int = 0) -> list[int]:
    keys, values = cache.read(layer, num_scratch)
    assert torch.equal(keys, -values)
    return [int(n) - 1000 * layer for n in keys[0, :, 0]]


def write(cache: DraftCache, first: int, count: int, offset: int = 0) -> None:
    for layer in range(SHAPE.num_layers):
        data = rows(first, count, layer)
        cache.write(layer, data, -data, offset)


Moves = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(1, 90)),
        st.tuples(st.just("scratch"), st.integers(1, 90)),
        st.tuples(st.just("crop"), st.integers(0, 300)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), Moves)
def test_kept_positions_survive_growth_scratch_and_crops(
    start: int, moves: list[tuple[str, int]]
) -> None:
    cache, model, fresh = DraftCache(SHAPE, start), [], 0
    for kind, amount in moves:
        if kind == "crop":
            cache.crop(amount)
            model = model[: max(amount - start, 0)]
        else:
            cache.reserve(amount)
            write(cache, fresh, amount)
            added = list(range(fresh, fresh + amount))
            assert numbers(cache, 1, amount) == model + added
            if kind == "keep":
                cache.keep(amount)
                model += added
            fresh += amount
        cache.check_integrity()
        assert (cache.length, cache.end) == (len(model), start + len(model))
        for layer in range(SHAPE.num_layers):
            assert numbers(cache, layer) == model


def test_scratch_levels_lie_behind_each_other() -> None:
    cache = DraftCache(SHAPE)
    cache.reserve(6)
    write(cache, 0, 2)
    cache.keep(2)
    write(cache, 10, 1)
    write(cache, 20, 3, offset=1)
    assert numbers(cache, 0, 4) == [0, 1, 10, 20, 21, 22]
    with pytest.raises(ValueError, match="never written"):
        cache.keep(1000)


def test_memory_is_counted() -> None:
    cache = DraftCache(SHAPE)
    assert cache.num_bytes == SHAPE.num_bytes(0) == 0
    cache.reserve(100)
    assert cache.num_bytes == SHAPE.num_bytes(100)
    assert SHAPE.bytes_per_position == 2 * 2 * 3 * 4 * 4
    assert cache.num_bytes % SHAPE.bytes_per_position == 0
    assert 100 <= cache.num_bytes // SHAPE.bytes_per_position < 200
