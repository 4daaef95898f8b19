"""The walk: what is emitted is what plain decoding would emit, whatever the tree."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from whiflash.core.draft import DraftTree
from whiflash.sampling.acceptance import walk

V = 4


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    size = draw(st.integers(0, 12))
    tokens = draw(st.lists(st.integers(0, V - 1), min_size=size, max_size=size))
    parents = [draw(st.integers(0, node)) for node in range(size)]
    return DraftTree.from_parents(tokens, parents)


@given(trees(), st.lists(st.integers(0, V - 1), min_size=20, max_size=20))
def test_emits_the_text_and_commits_its_path(tree: DraftTree, text: list[int]) -> None:
    calls: list[tuple[int, tuple[int, ...]]] = []

    def choose(row: int, path: Sequence[int]) -> int:
        calls.append((row, tuple(path)))
        return text[len(path)]

    result = walk(tree, choose)
    assert list(result.tokens) == text[: len(result.tokens)]
    assert len(result.rows) == len(result.tokens) == result.accepted + 1
    assert [row for row, _ in calls] == list(result.rows)
    assert result.rows[0] == 0
    for depth, row in enumerate(result.rows):
        assert tree.path_tokens(row) == text[:depth]
        assert calls[depth][1] == tuple(text[:depth])
    last_children = [
        int(tree.tokens[node]) for node in range(len(tree)) if tree.parents[node] == result.rows[-1]
    ]
    assert result.tokens[-1] not in last_children


@given(trees(), st.lists(st.integers(0, V - 1), min_size=20, max_size=20))
def test_longest_match_of_all_paths_is_accepted(tree: DraftTree, text: list[int]) -> None:
    """Also where equal siblings hide it: the first of them is the one that counts."""
    result = walk(tree, lambda _row, path: text[len(path)])
    firsts = tree.children()
    reachable = {0}
    for table in firsts:
        reachable.update(table.values())
    best = 0
    for row in range(len(tree) + 1):
        path = tree.path_tokens(row)
        is_first = _is_first_child_path(tree, row)
        if is_first and path == text[: len(path)]:
            best = max(best, len(path))
    assert result.accepted == best


def _is_first_child_path(tree: DraftTree, row: int) -> bool:
    children = tree.children()
    while row > 0:
        parent = int(tree.parents[row - 1])
        if children[parent][int(tree.tokens[row - 1])] != row:
            return False
        row = parent
    return True


def test_empty_tree_emits_one_token() -> None:
    """vllm PR #50021: zero accepted tokens is an ordinary case."""
    result = walk(DraftTree.empty(), lambda _row, _path: 3)
    assert result.rows == (0,)
    assert result.tokens == (3,)
    assert result.accepted == 0


def test_rows_that_are_not_on_the_path_are_never_sampled() -> None:
    tree = DraftTree.from_parents([1, 2, 3, 1], [0, 0, 1, 2])
    seen: list[int] = []

    def choose(row: int, path: Sequence[int]) -> int:
        seen.append(row)
        return (2, 1, 0)[len(path)]

    assert walk(tree, choose).rows == (0, 2, 4)
    assert seen == [0, 2, 4]
