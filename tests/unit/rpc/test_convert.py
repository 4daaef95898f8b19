"""Records of drafters and policies survive the way there and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.core.rows import (
    CatchUp,
    Choice,
    DraftRow,
    DraftSampling,
    Feedback,
    Outcome,
    Prediction,
    RouteRow,
)
from whiflash.core.signals import Signals
from whiflash.drafters.survival import ScoredTree
from whiflash.rpc import convert, convert_routes
from whiflash.rpc.held_ids import HeldIds, span_hash

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)
ODDS = st.floats(0, 1, width=32)
REALS = st.floats(allow_nan=False, width=64)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    size = draw(st.integers(0, 12))
    parents = [draw(st.integers(0, node)) for node in range(size)]
    tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size))
    odds = draw(st.lists(ODDS, min_size=size, max_size=size))
    tree = DraftTree.from_parents(tokens, parents, odds, draw(st.text(max_size=5)))
    if not draw(st.booleans()):
        return tree
    cells = np.arange(size, dtype=np.int32)
    return ScoredTree(
        tree.tokens, tree.parents, tree.depths, tree.survival, tree.source, cells
    )  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> DraftRow:
    sampling = None
    if draw(st.booleans()):
        sampling = DraftSampling(draw(st.floats(0.1, 9)), 5, 0.5, 0.25, draw(st.binary()), 7)
    context = np.array(draw(IDS), np.int32)
    return DraftRow(draw(st.integers(0, 2**40)), draw(st.text(max_size=5)), context, 4, 3, sampling)


def same_tree(a: DraftTree, b: DraftTree) -> bool:
    fields = ["tokens", "parents", "depths", "survival"]
    if isinstance(a, ScoredTree):
        fields.append("cells")
    alike = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in fields)
    return type(a) is type(b) and alike and a.source == b.source


def same_row(a: DraftRow, b: DraftRow) -> bool:
    names = ("sequence_id", "namespace", "max_nodes", "max_depth", "sampling")
    return np.array_equal(a.context, b.context) and all(
        getattr(a, name) == getattr(b, name) for name in names
    )


@given(trees())
def test_trees(tree: DraftTree) -> None:
    assert same_tree(tree, convert.read_tree(convert.tree_message(tree)))


@given(rows(), st.data())
def test_rows_of_which_the_other_end_holds_a_part(row: DraftRow, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(row.context)))
    origin = data.draw(st.integers(0, start))
    message = convert.query_message(row, start)
    whole = convert.read_query(message, row.context[:start])
    assert same_row(row, whole)
    cut = convert.read_query(message, row.context[origin:start], origin).context
    assert np.array_equal(cut[origin:], row.context[origin:])
    assert (cut[:origin] == convert.UNKNOWN_ID).all()


@given(
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_tensors(dtype: torch.dtype, shape: list[int]) -> None:
    tensor = (torch.arange(int(np.prod(shape))) % 97).to(dtype).reshape(shape)
    read = convert.read_tensor(convert.tensor_message(tensor))
    assert read.dtype == dtype
    assert torch.equal(read, tensor)


def test_broken_tensors_are_refused() -> None:
    message = convert.tensor_message(torch.zeros(3, 2))
    message.data = message.data[:-1]
    with pytest.raises(ValueError, match="no float32 tensor"):
        convert.read_tensor(message)
    message.dtype = "complex64"
    with pytest.raises(ValueError, match="cannot be read"):
        convert.read_tensor(message)


@given(st.integers(1, 60), st.integers(0, 500), st.integers(16, 400))
def test_ranges_in_frames(count: int, start: int, max_bytes: int) -> None:
    """The frames follow each other without a gap, and are no larger than was asked."""
    ids = np.arange(count + 1, dtype=np.int32)
    row = CatchUp(9, start, ids, torch.randn(count, 3), is_window_start=True)
    frames = list(convert.catch_up_frames(row, 0, 77, max_bytes))
    read = [convert.read_catch_up(frame) for frame in frames]
    assert torch.equal(torch.cat([part.fused for part in read]), row.fused)
    place = start
    for part in read:
        assert part.start == place
        assert np.array_equal(part.token_ids, ids[place - start :][: len(part.token_ids)])
        assert part.fused.shape[0] * (3 * 4 + 4) <= max(max_bytes, 16)
        place += len(part.token_ids) - 1
    assert place == start + count
    assert [frame.is_window_start for frame in frames] == [True] + [False] * (len(frames) - 1)


@given(rows(), trees(), st.lists(st.integers(0, 99), max_size=5), st.booleans())
def test_feedback(row: DraftRow, tree: DraftTree, followed: list[int], verified: bool) -> None:
    entry = Feedback(row, tree, tuple(followed), verified)
    message = convert.feedback_message(entry)
    read = convert.read_feedback(message, row.context[:-1])
    assert same_row(row, read.row)
    assert same_tree(tree, read.tree)
    assert (read.followed, read.verified) == (entry.followed, verified)


@st.composite
def route_rows(draw: st.DrawFn) -> RouteRow:
    hidden = np.array(draw(st.lists(ODDS, max_size=6)), np.float32) if draw(st.booleans()) else None
    agreement = tuple(draw(st.lists(REALS, max_size=3))) if draw(st.booleans()) else None
    signals = Signals(
        draw(REALS), draw(REALS), hidden, tuple(draw(st.lists(REALS, max_size=3))), agreement
    )
    drafts = {arm: draw(trees()) for arm in draw(st.sets(st.sampled_from(["a", "b"])))}
    rates = draw(st.dictionaries(st.sampled_from(["a", "b"]), ODDS))
    return RouteRow(3, "n", signals, ("none", "a", "b"), drafts, 4, 5, 6, {"b": 7}, load=8,
                    recent_rates=rates)  # fmt: skip


def same_route(a: RouteRow, b: RouteRow) -> bool:
    names = ("sequence_id", "namespace", "arms", "matched", "max_nodes", "context_tokens",
             "backlog", "load", "recent_rates")  # fmt: skip
    mine, other = a.signals.hidden, b.signals.hidden
    hidden = mine is other if mine is None or other is None else np.array_equal(mine, other)
    signals = ("entropy", "margin", "recent", "agreement")
    return (
        hidden
        and all(getattr(a, n) == getattr(b, n) for n in names)
        and all(getattr(a.signals, n) == getattr(b.signals, n) for n in signals)
        and a.drafts.keys() == b.drafts.keys()
        and all(same_tree(tree, b.drafts[arm]) for arm, tree in a.drafts.items())
    )


@given(route_rows())
@settings(max_examples=50)
def test_routes_and_outcomes(row: RouteRow) -> None:
    assert same_route(row, convert_routes.read_row(convert_routes.row_message(row)))
    odds = np.array([0.5, 0.25])
    outcome = Outcome(row, Choice("a", 2, True, odds), 2, 1, 2, True, 0.5)
    message = convert_routes.outcome_message(outcome, 12)
    assert message.policy_version == 12
    read = convert_routes.read_outcome(message)
    assert read.row.signals.hidden is None, "no policy learns from it, and it is large"
    assert read.choice == outcome.choice
    assert np.array_equal(read.choice.survival, odds)
    assert (read.drafted, read.accepted, read.emitted, read.ended) == (2, 1, 2, True)
    assert read.propensity == 0.5


@given(st.one_of(st.none(), st.tuples(st.text(max_size=4), st.integers(0, 99))),
       st.dictionaries(st.text(max_size=4), st.lists(REALS, max_size=5), max_size=3))  # fmt: skip
def test_predictions(fixed: tuple[str, int] | None, survival: dict[str, list[float]]) -> None:
    odds = {arm: np.array(values, np.float64) for arm, values in survival.items()}
    message = convert_routes.prediction_message(Prediction(fixed, odds))
    read = convert_routes.read_prediction(message)
    assert read.fixed == fixed
    assert {arm: values.tolist() for arm, values in read.survival.items()} == {
        arm: values.tolist() for arm, values in odds.items()
    }


@given(IDS, st.data())
def test_hashes_of_parts_add_up_and_tell_texts_apart(ids: list[int], data: st.DataObject) -> None:
    array = np.array(ids, np.int32)
    origin = data.draw(st.integers(0, 50))
    middle = data.draw(st.integers(0, len(ids)))
    held = HeldIds(origin)
    held.append(array[:middle])
    held.append(array[middle:])
    assert held.hash == span_hash(array, origin)
    assert held.hash_at(origin + middle) == span_hash(array[:middle], origin)
    held.truncate(origin + middle)
    assert (held.end, held.hash) == (origin + middle, span_hash(array[:middle], origin))
    other = array.copy()
    other[0] ^= 1
    assert span_hash(other, origin) != span_hash(array, origin)
    assert span_hash(array, origin + 1) != span_hash(array, origin)
