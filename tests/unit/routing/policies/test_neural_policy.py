"""neural: a GELU MLP on the hidden state predicts dAL; files and settings that do not fit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from whiflash.core.costs import CostCurve
from whiflash.core.errors import ConfigError
from whiflash.core.rows import NONE, RouteRow
from whiflash.core.signals import Signals
from whiflash.routing.costs import CostModel
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.policies.registry import make_policy, policy_of
from whiflash.routing.router_file import RouterFile, as_stored
from whiflash.routing.setting import PolicySetting, check_setting, signal_needs

COSTS = CostModel(CostCurve(((1, 20.0), (64, 83.0))))
HIDDEN, WIDTH = 6, 5


def tensors(width=WIDTH, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = {"fc1.weight": (width, HIDDEN), "fc1.bias": (width,), "fc2.weight": (1, width),
              "fc2.bias": (1,)}  # fmt: skip
    # Numbers that a file keeps, whatever it keeps them in.
    return {n: as_stored(torch.randn(s, generator=generator)).to(dtype) for n, s in shapes.items()}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "router.safetensors"
    RouterFile("fingerprint", NeuralRouter("eagle3", "dflash", tensors())).write(path)
    return path


def row_of(hidden, arms=("eagle3", "dflash")):
    state = None if hidden is None else np.asarray(hidden, np.float32)
    return RouteRow(0, "n", Signals(0.1, 0.5, state), (NONE, *arms), {}, max_nodes=8)


def expected_gain(hidden) -> float:
    """By hand: two matrix products and the exact GELU."""
    t = {name: value.numpy().astype(np.float64) for name, value in tensors().items()}
    inner = t["fc1.weight"] @ hidden + t["fc1.bias"]
    gelu = np.array([x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in inner])
    return float((t["fc2.weight"] @ gelu + t["fc2.bias"])[0])


def test_the_threshold_divides_at_the_predicted_gain(file):
    random = np.random.default_rng(1)
    states = random.normal(size=(20, HIDDEN))
    for state in states:
        gain = expected_gain(state)
        low = make_policy("neural", COSTS, file=str(file), threshold=gain - 1e-3)
        high = make_policy("neural", COSTS, file=str(file), threshold=gain + 1e-3)
        assert low.predict([row_of(state)])[0].fixed == ("eagle3", 8)
        assert high.predict([row_of(state)])[0].fixed == ("dflash", 8)


def test_rows_do_not_depend_on_each_other(file):
    policy = make_policy("neural", COSTS, file=str(file), threshold=0.0)
    rows = [row_of(s) for s in np.random.default_rng(2).normal(size=(9, HIDDEN))]
    alone = [policy.predict([row])[0].fixed for row in rows]
    assert [p.fixed for p in policy.predict(rows)] == alone
    assert len(set(alone)) == 2


def test_half_precision_files_and_any_width(tmp_path):
    path = tmp_path / "r.safetensors"
    RouterFile("f", NeuralRouter("eagle3", "ddtree", tensors(17, torch.bfloat16))).write(path)
    router = RouterFile.read(path).neural
    assert (router.width, router.hidden_size, router.negative) == (17, HIDDEN, "ddtree")
    assert router.predict(np.zeros((2, HIDDEN), np.float32)).shape == (2,)


def test_without_a_sound_state_it_takes_the_negative_arm(file):
    policy = make_policy("neural", COSTS, file=str(file), threshold=-1e9)
    nan = row_of(np.full(HIDDEN, np.nan))
    assert [p.fixed for p in policy.predict([row_of(None), nan])] == [("dflash", 8)] * 2
    assert policy.predict([row_of(None, ("eagle3",))])[0].fixed == ("eagle3", 8)
    assert policy.predict([row_of(None, ())])[0].fixed == (NONE, 0)


def test_it_asks_for_the_hidden_state_and_others_do_not(file):
    assert signal_needs(make_policy("neural", COSTS, file=str(file))).hidden
    assert not signal_needs(make_policy("goodput", COSTS)).hidden


def test_the_router_that_comes_with_the_target_is_taken(file, tmp_path, monkeypatch):
    monkeypatch.setattr("whiflash.models.shipped.checkpoints_folder", lambda: tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "router.safetensors").write_bytes(file.read_bytes())
    arms = ("eagle3", "dflash")
    policy, named = policy_of("neural", COSTS), policy_of(f"neural:file={file}", COSTS)
    check_setting(policy, PolicySetting(arms, HIDDEN, "fingerprint"))
    rows = [row_of(state) for state in np.random.default_rng(1).normal(size=(8, HIDDEN))]
    assert policy.predict(rows) == named.predict(rows)
    with pytest.raises(ConfigError, match="none is shipped for this target"):
        check_setting(policy_of("neural", COSTS), PolicySetting(arms, HIDDEN, "another"))


def test_what_does_not_fit_is_refused_in_words(file):
    policy = policy_of(f"neural:file={file},threshold=0.5", COSTS)
    arms = ("eagle3", "dflash")
    check_setting(policy, PolicySetting(arms, HIDDEN, "fingerprint"))
    for setting, told in (
        (PolicySetting(arms, HIDDEN + 1, "fingerprint"), "of 6, but the target's is 7"),
        (PolicySetting(arms, HIDDEN, "another"), "belongs to the target fingerprint"),
        (PolicySetting(("eagle3",), HIDDEN, "fingerprint"), "add dflash"),
        (PolicySetting(arms, 0, "fingerprint", is_replay=True), "no log holds"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_setting(policy, setting)


@pytest.mark.parametrize(
    ("change", "metadata", "told"),
    [
        ({"fc3.weight": torch.zeros(1)}, {}, "too many: fc3.weight"),
        ({}, {"neural": "[]"}, "metadata `neural` is no table"),
        ({}, {"neural": '{"positive": "a"}'}, "lacks metadata: negative"),
        ({}, {"heads": '{"arms": []}'}, "metadata `heads` lists no arm"),
        ({"fc1.bias": None}, {}, "lacks tensors.*fc1.bias"),
        ({"fc1.bias": torch.zeros(WIDTH + 1)}, {}, r"fc1.bias has shape \(6,\), expected \(5,\)"),
        ({"fc2.weight": torch.zeros(2, WIDTH)}, {}, "fc2.weight has shape"),
        ({"fc2.bias": torch.full((1,), torch.nan)}, {}, "no numbers"),
        ({}, {"format": "other"}, "no whiflash-router-2 file"),
        ({}, {"target": ""}, "lacks metadata: target"),
    ],
)
def test_loading_is_strict(tmp_path, change, metadata, told):
    held = {f"neural.{n}": t for n, t in {**tensors(), **change}.items() if t is not None}
    names = json.dumps({"positive": "a", "negative": "b"})
    given = {"format": "whiflash-router-2", "target": "f", "neural": names}
    path = tmp_path / "r.safetensors"
    save_file(held, path, {**given, **metadata})
    with pytest.raises(ConfigError, match=told):
        make_policy("neural", COSTS, file=str(path))


def test_what_is_no_router_file_is_refused(tmp_path):
    path = tmp_path / "r.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="no safetensors file"):
        make_policy("neural", COSTS, file=str(path))
    with pytest.raises(ConfigError, match="does not exist"):
        make_policy("neural", COSTS, file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="where no target is known"):
        make_policy("neural", COSTS).predict([row_of(None)])
