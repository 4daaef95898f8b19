"""Records are scoped and cannot be changed behind the store's back."""

from __future__ import annotations

import numpy as np
import pytest

from whiflash.trajectories.record import TrajectoryRecord


def test_a_record_owns_its_tokens() -> None:
    tokens = np.array([1, 2, 3], np.int64)
    record = TrajectoryRecord("a", "run", tokens)
    tokens[0] = 9
    assert record.tokens.tolist() == [1, 2, 3]
    assert record.tokens.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        record.tokens[0] = 9


def test_a_record_needs_a_namespace_and_one_row_of_ids() -> None:
    with pytest.raises(ValueError, match="namespace is required"):
        TrajectoryRecord("", "run", np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="one row of ids"):
        TrajectoryRecord("a", "run", np.zeros((1, 2), np.int32))
