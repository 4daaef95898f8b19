"""Versions of a router's policy: each stands still, and all begin with what the target has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whiflash.core.costs import CostCurve
from whiflash.core.draft import DraftTree
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, Choice, Outcome, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.heads import NUM_KNOTS, NUM_RANKS, HeadArm, SurvivalHeads, num_signals
from whiflash.routing.router_file import RouterFile
from whiflash.rpc.policy_state import load_policy
from whiflash.rpc.policy_versions import PolicyVersions

CURVE = CostCurve(((1, 20.0), (64, 83.0)))
HIDDEN, WIDTH = 4, 3


def _row(hidden: bool = True) -> RouteRow:
    state = np.ones(HIDDEN, np.float32) if hidden else None
    draft = DraftTree.chain([1] * 4, 0.8 ** np.arange(1, 5))
    return RouteRow(1, "n", Signals(0.4, 0.5, state), (NONE, "retrieval"), {"retrieval": draft}, 8,
                    8)  # fmt: skip


def _lost(row: RouteRow) -> Outcome:
    return Outcome(row, Choice("retrieval", 4), 4, 0, 1, False)


def _survival(versions: PolicyVersions) -> list[float]:
    return versions.predict([_row()])[0].survival["retrieval"].tolist()


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A router file of the target "f", which expects little of retrieval."""
    monkeypatch.setattr("whiflash.models.shipped.checkpoints_folder", lambda: tmp_path)
    knots = np.linspace(0.0, 1.0, NUM_KNOTS, dtype=np.float32)[None]
    sizes: dict[str, tuple[int, ...]] = {
        "hidden_weight": (WIDTH, HIDDEN), "signal_weight": (WIDTH, num_signals(1)),
        "out_weight": (NUM_RANKS, WIDTH), "hidden_mean": (HIDDEN,), "bias": (WIDTH,),
    }  # fmt: skip
    zeros = {name: np.zeros(size, np.float32) for name, size in sizes.items()}
    heads = SurvivalHeads(
        (HeadArm("retrieval", True, 8),), **zeros, claim_weight=np.zeros((1, 2), np.float32),
        out_bias=np.full(NUM_RANKS, -1.0, np.float32), claimed=knots, true=knots,
    )  # fmt: skip
    path = tmp_path / "toy" / "router.safetensors"
    path.parent.mkdir()
    RouterFile("f", heads=heads).write(path)
    return path


def test_a_version_stands_still_until_the_next_one() -> None:
    versions = PolicyVersions("goodput", CURVE, 8, "f")
    first, data = _survival(versions), versions.data
    for count in range(1, 8):
        assert not versions.learn([_lost(_row())]), count
        assert (_survival(versions), versions.number, versions.data) == (first, 1, data)
    assert versions.learn([_lost(_row())])
    assert versions.number == 2
    assert _survival(versions)[0] < first[0]
    # The first one is still what it was, wherever it lies.
    again = load_policy(data, CostModel(CURVE)).predict([_row()])[0].survival["retrieval"]
    assert again.tolist() == first


def test_every_version_begins_with_the_heads_of_its_target(shipped: Path) -> None:
    assert shipped.is_file()
    known, other = (PolicyVersions("goodput", CURVE, 8, target) for target in ("f", "g"))
    odds = 1.0 / (1.0 + np.e)
    assert _survival(known) == pytest.approx(odds ** np.arange(1, 5))
    assert _survival(other)[0] > 0.7
    for _ in range(8):
        known.learn([_lost(_row(hidden=False))])
    assert known.number == 2
    # One step of learning is bounded, so eight are.
    assert 0.4 * odds < _survival(known)[0] < odds


def test_a_network_that_nobody_has_is_told() -> None:
    with pytest.raises(ConfigError, match="none is shipped for this target"):
        PolicyVersions("neural", CURVE, 8, "f")
