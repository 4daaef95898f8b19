"""Published policies in a real loop: the same text, both paradigms used, signals as asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.engine.core import EngineCore
from whiflash.routing.neural_router import NeuralRouter
from whiflash.routing.policies.registry import policy_of
from whiflash.routing.router_file import RouterFile
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing import engines
from whiflash.testing.engines import run
from whiflash.testing.toy_drafters import ToyDrafters

PARAMS = SamplingParams(max_tokens=40, temperature=0.9, ignore_eos=True)
PROMPTS = ((5, 6, 7, 8, 9), (20, 21, 20, 21, 20), (33,))


class Scene:
    """A toy target whose drafters are called as in production."""

    def __init__(self, folder: Path, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        self.loaded: LoadedTarget = load_target(str(folder), dtype="float64")
        self._toys = ToyDrafters(tmp_path / "drafters", self.loaded.target)
        patch.setattr(engines, "make_policy", policy_of)

    def core(self, policy: str) -> EngineCore:
        names = {"eagle3": "eagle3_chain", "dflash": "dflash"}
        made: dict[str, TapDrafter] = {arm: self._toys.make(name) for arm, name in names.items()}
        return engines.small_core(self.loaded, made, policy)

    def texts(self, core: EngineCore) -> list[tuple[int, ...]]:
        requests = [GenerationRequest(prompt, PARAMS) for prompt in PROMPTS]
        return [choice.token_ids for choices in run(core, *requests) for choice in choices]


@pytest.fixture
def scene(toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("WHIFLASH_CACHE", str(tmp_path / "cache"))
    return Scene(toy_folder, tmp_path, monkeypatch)


@pytest.fixture
def router_file(scene: Scene, tmp_path: Path) -> Path:
    """Reads the sum of the first half of the hidden state less that of the second."""
    info = scene.loaded.target.info
    signs = torch.ones(1, info.hidden_size)
    signs[0, info.hidden_size // 2 :] = -1.0
    tensors = {
        "fc1.weight": torch.cat([signs, -signs]),
        "fc1.bias": torch.zeros(2),
        "fc2.weight": torch.tensor([[1.0, -1.0]]),
        "fc2.bias": torch.zeros(1),
    }
    path = tmp_path / "router.safetensors"
    RouterFile(info.fingerprint, NeuralRouter("eagle3", "dflash", tensors)).write(path)
    return path


@pytest.mark.parametrize(
    "policy",
    ["entropy:tau=1.2", "entropy:tau=1.2,trim=yes", "bandit", "bandit:reward=efficiency",
     "rules:rule=respec", "survey", "neural"],
)  # fmt: skip
def test_no_policy_changes_a_text(scene: Scene, router_file: Path, policy: str) -> None:
    text = f"neural:file={router_file},threshold=0.0" if policy == "neural" else policy
    core = scene.core(text)
    assert scene.texts(core) == scene.texts(scene.core("static:arm=none"))
    rounds = core.counters.arm_rounds
    if policy in ("entropy:tau=1.2", "neural", "bandit", "bandit:reward=efficiency"):
        assert rounds["eagle3"] > 3
        assert rounds["dflash"] > 3
    if policy == "survey":
        assert set(rounds) == {"none"}


def test_a_policy_is_given_what_it_asks_for_and_no_more(scene: Scene, router_file: Path) -> None:
    seen: dict[str, list] = {}

    def spy(policy: str) -> None:
        core = scene.core(policy)
        inner = core._router.policy
        predict: Callable = inner.predict
        rows: list = seen.setdefault(policy.partition(":")[0], [])
        inner.predict = lambda given: (rows.extend(given), predict(given))[1]  # type: ignore[method-assign]
        scene.texts(core)

    for policy in (f"neural:file={router_file}", "rules:rule=respec", "bandit", "entropy:tau=1"):
        spy(policy)
    assert all(r.signals.hidden.shape == (32,) for r in seen["neural"])
    assert all(np.isfinite(r.signals.hidden).all() for r in seen["neural"])
    # The first token is the prompt's: one entropy is known, then two, then three.
    assert {len(r.signals.recent) for r in seen["rules"]} == {1, 2, 3}
    agreements = [r.signals.agreement for r in seen["bandit"]]
    assert () in agreements
    assert any(len(a) > 1 for a in agreements)
    assert all(0.0 <= p <= 1.0 for a in agreements for p in a)
    for row in seen["entropy"]:
        assert (row.signals.hidden, row.signals.recent, row.signals.agreement) == (None, (), None)
