"""The slab cache against a plain list of what was written, for both kinds of slab."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.models.blocks import BlockSlab, padded
from whiflash.models.cache import SlabCache
from whiflash.models.slab import CacheLayout, LayerShape, RowSlab, Slab
from whiflash.models.taps import TapPlane

LAYOUT = padded(
    CacheLayout((LayerShape(2, 3, 16), LayerShape(1, 5, 32)), torch.float32, torch.device("cpu"))
)
KINDS = {"rows": RowSlab, "blocks": BlockSlab}


def _write(slab: Slab, slot: int, token: float) -> None:
    """A K and V that tell the token, the layer, the head and the column."""
    for layer, shape in enumerate(LAYOUT.layers):
        for head in range(shape.num_heads):
            key, value = _expected(layer, head, token)
            if isinstance(slab, RowSlab):
                slab.keys[layer][head, slot], slab.values[layer][head, slot] = key, value
            else:
                _write_block(slab, layer, head, slot, key, value)


def _write_block(
    slab: Slab, layer: int, head: int, slot: int, key: torch.Tensor, value: torch.Tensor
) -> None:
    assert isinstance(slab, BlockSlab)
    keys, values = slab.block(slot // 64)[layer]
    keys[head, :, slot % 64], values[head, slot % 64] = key, value


def _expected(layer: int, head: int, token: float) -> tuple[torch.Tensor, torch.Tensor]:
    shape = LAYOUT.layers[layer]
    base = token * 1000 + layer * 100 + head * 10
    columns = torch.arange(64) / 64
    return base + columns[: shape.key_width], -base - columns[: shape.value_width]


def _assert_holds(cache: SlabCache, tokens: list[int]) -> None:
    assert cache.length == len(tokens)
    slab = cache.slab
    assert isinstance(slab, BlockSlab | RowSlab)
    for layer, shape in enumerate(LAYOUT.layers):
        keys, values = slab.rows(layer, len(tokens))
        for head in range(shape.num_heads):
            for position, token in enumerate(tokens):
                key, value = _expected(layer, head, token)
                assert torch.equal(keys[head, position], key)
                assert torch.equal(values[head, position], value)


def _round(cache: SlabCache, tokens: list[int], seed: int, kind: str) -> None:
    """One forward of random rows and the commit of a random path of them."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 90 if kind == "chunk" else 12))
    parents = np.arange(-1, count - 1, dtype=np.int32)
    if kind == "tree":
        parents = np.array([random.integers(-1, row) for row in range(count)], np.int32)
    cache.reserve(count)
    written = [int(random.integers(1, 500)) for _ in range(count)]
    for row, token in enumerate(written):
        _write(cache.slab, cache.length + row, token)
    fused = torch.tensor(written, dtype=torch.float32)[:, None] + torch.arange(3) / 4
    cache.write_taps("weights", fused)
    cache.wrote(parents)
    row, path = int(random.integers(-1, count)), []
    while row >= 0:
        path.append(row)
        row = int(parents[row])
    cache.commit(path[::-1])
    tokens.extend(written[row] for row in path[::-1])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["chunk", "tree", "tree", "chain", "truncate", "fork"]),
        st.integers(0, 2**31),
    ),
    max_size=8,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_cache_holds_exactly_what_was_committed(kind: str, steps: list[tuple[str, int]]) -> None:
    plane = TapPlane(3, torch.float32, LAYOUT.device, 1)
    cache, tokens = SlabCache(KINDS[kind](LAYOUT, 1), {"weights": plane}), list[int]()
    forks: list[tuple[SlabCache, list[int]]] = []
    for step, seed in steps:
        length = seed % (len(tokens) + 1)
        if step == "truncate":
            cache.truncate(length)
            del tokens[length:]
        elif step == "fork":
            forks.append((cache.fork(length), tokens[:length]))
        else:
            _round(cache, tokens, seed, step)
        cache.check_integrity()
    for held, expected in [(cache, tokens), *forks]:
        _assert_holds(held, expected)
        taps = held.fused_taps("weights", 0, len(expected))
        assert (taps * 4 == torch.tensor(expected)[:, None] * 4 + torch.arange(3)).all()
        assert held.num_bytes >= len(expected) * (LAYOUT.bytes_per_token + 3 * 4)
        held.release()
        held.release()
        assert held.num_bytes == 0
        held.check_integrity()


@pytest.fixture(params=KINDS)
def cache(request: pytest.FixtureRequest) -> SlabCache:
    made = SlabCache(KINDS[request.param](LAYOUT, 4))
    made.reserve(3)
    made.wrote(np.array([-1, 0, 0], np.int32))
    return made


@pytest.mark.parametrize("rows", [[3], [-1], [1], [0, 0], [1, 0], [0, 1, 2]])
def test_only_a_written_path_can_be_committed(cache: SlabCache, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="row"):
        cache.commit(rows)
    assert cache.num_scratch == 3
    cache.commit([0, 2])
    assert cache.length == 2


def test_only_committed_taps_of_an_attached_drafter_are_handed_over(cache: SlabCache) -> None:
    with pytest.raises(ValueError, match="not committed"):
        cache.fused_taps("weights", 0, 1)
    with pytest.raises(ValueError, match="no drafter with weights"):
        cache.fused_taps("weights", 0, 0)


def test_an_empty_commit_drops_scratch(cache: SlabCache) -> None:
    cache.commit([])
    assert (cache.length, cache.num_scratch) == (0, 0)
    with pytest.raises(ValueError, match="not written"):
        cache.commit([0])


def test_lengths_beyond_what_is_committed_are_refused(cache: SlabCache) -> None:
    cache.commit([0])
    for change in (cache.truncate, cache.fork):
        for length in (-1, 2):
            with pytest.raises(ValueError, match="positions"):
                change(length)


def test_a_released_cache_says_so(cache: SlabCache) -> None:
    cache.release()
    with pytest.raises(ValueError, match="released"):
        cache.reserve(1)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_depend_on_how_the_cache_grew(kind: str) -> None:
    for length in (1, 64, 65, 129, 400):
        grown = SlabCache(KINDS[kind](LAYOUT, 1))
        for _ in range(length):
            grown.reserve(1)
            grown.wrote(np.array([-1], np.int32))
            grown.commit([0])
        at_once = SlabCache(KINDS[kind](LAYOUT, length))
        assert grown.num_bytes == at_once.num_bytes == LAYOUT.num_bytes(length)
        assert grown.fork(length).num_bytes == grown.num_bytes
