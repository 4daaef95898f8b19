"""Masks of block attention against the rules read one key at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whiflash.drafters.dflash.sight import LayerSight

sights = st.builds(
    LayerSight,
    is_causal=st.booleans(),
    window_tokens=st.one_of(st.none(), st.integers(1, 12)),
    is_anchored=st.booleans(),
)


def sees(sight: LayerSight, root: int, slot: int, key: int) -> bool:
    if sight.is_causal and key > slot:
        return False
    if sight.window_tokens is None:
        return True
    if sight.is_anchored:
        return key >= root or root - key <= sight.window_tokens
    return slot - key < sight.window_tokens and key - slot < sight.window_tokens


@given(sights, st.integers(0, 20), st.integers(1, 8))
def test_masks_say_what_the_rules_say(sight: LayerSight, root: int, num_slots: int) -> None:
    first = sight.first_visible(root)
    mask = sight.mask(first, root, num_slots)
    for slot in range(root, root + num_slots):
        for key in range(root + num_slots):
            expected = sees(sight, root, slot, key)
            if key < first:
                assert not expected
            else:
                found = True if mask is None else bool(mask[slot - root, key - first])
                assert found == expected


@given(sights, st.integers(0, 20), st.integers(1, 8))
def test_nothing_is_read_that_no_slot_sees(sight: LayerSight, root: int, num_slots: int) -> None:
    first = sight.first_visible(root)
    assert 0 <= first <= root
    mask = sight.mask(first, root, num_slots)
    assert mask is None or first == root or bool(mask[:, 0].any())


def test_the_plain_layer_needs_no_mask() -> None:
    assert LayerSight().first_visible(50) == 0
    assert LayerSight().mask(0, 50, 8) is None
    assert LayerSight(window_tokens=100).mask(0, 50, 8) is None
    causal = LayerSight(is_causal=True).mask(0, 2, 2)
    assert causal is not None
    assert np.array_equal(causal, [[True, True, True, False], [True] * 4])
