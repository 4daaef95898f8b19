"""From a toy target's text to a router that serves: file, card, plan, policy, replay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from whiflash.cli.main import run
from whiflash.core.params import SamplingParams
from whiflash.engine.engine import Engine
from whiflash.routing.policies.goodput import GoodputPolicy
from whiflash.routing.router_file import RouterFile
from whiflash.target.load import LoadedTarget
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3
from whiflash.training.data.prompts import HELD_OUT
from whiflash.training.router.texts import router_texts

TEXTS = 200


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("drafters")
    return (
        "retrieval",
        f"eagle3:{write_toy_eagle3(folder / 'e')},tree=chain,boundaries=1+2",
        f"dflash:{write_toy_dflash(folder / 'd')}",
    )


@pytest.fixture(scope="module")
def own_work(work_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text alone: a router needs no features of drafters."""
    folder = tmp_path_factory.mktemp("text")
    shutil.copytree(work_dir / "generations", folder / "generations")
    return folder


@pytest.fixture(scope="module")
def router(
    own_work: Path,
    toy_folder: Path,
    drafters: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Trained by the command that the guide gives."""
    out = tmp_path_factory.mktemp("router") / "router.safetensors"
    named = [part for drafter in drafters for part in ("--drafter", drafter)]
    told = run(["train", "router", "--work-dir", str(own_work), "--model", str(toy_folder), *named,
                "--dtype", "float64", "--memory", "64MiB", "--texts", str(TEXTS), "--batch", "8",
                "--out", str(out), "--max-minutes", "2"])  # fmt: skip
    assert told == 0
    return out


def _engine(toy_folder: Path, drafters: tuple[str, ...], policy: str) -> Engine:
    return Engine(
        model=str(toy_folder), dtype="float64", memory=2**26, drafters=drafters, policy=policy,
        store="memory",
    )  # fmt: skip


def test_the_file_holds_both_and_its_card_tells_how_far_to_believe_it(
    router: Path, toy_target: LoadedTarget
) -> None:
    file = RouterFile.read(router)
    assert file.target == toy_target.target.info.fingerprint
    assert file.neural is not None
    assert (file.neural.positive, file.neural.negative, file.neural.width) == (
        "eagle3",
        "dflash",
        512,
    )
    assert file.heads is not None
    assert [(a.arm, a.has_claims, a.tree) for a in file.heads.arms] == [
        ("retrieval", True, ""), ("eagle3", False, "chain"), ("dflash", False, "chain"),
    ]  # fmt: skip
    told = json.loads(router.with_suffix(".json").read_text())
    for arm, figures in told["heads"]["arms"].items():
        rows = figures["reliability"]
        assert sum(row["nodes"] for row in rows) > 100, arm
        # Said and true of all held-out nodes together lie close.
        nodes = sum(row["nodes"] for row in rows)
        said, true = (sum(row[k] * row["nodes"] for row in rows) / nodes for k in ("said", "true"))
        assert said == pytest.approx(true, abs=0.05), arm
        # Some eighty held-out roots of a random target: there is next to nothing to learn, and
        # no harm may be done (that heads learn what is there: test_router_heads.py).
        assert figures["error"] < 1.1 * figures["error_of_rates"], arm
    card = router.with_suffix(".md").read_text()
    assert "### Reliability: eagle3" in card
    assert "Command: `" in card


def test_goodput_reads_it_and_the_text_stays_the_same(
    router: Path, toy_folder: Path, drafters: tuple[str, ...]
) -> None:
    texts = {}
    for policy in ("static:arm=none", f"goodput:file={router}"):
        with _engine(toy_folder, drafters, policy) as engine:
            answers = [engine.generate(p, SamplingParams(max_tokens=48)) for p in ("a b", "c d")]
            texts[policy] = [answer.choices[0].token_ids for answer in answers]
            learned = engine.plan()["routing"]["learned"]
            routed = engine.core._router.policy
    assert len(set(map(tuple, (map(tuple, t) for t in texts.values())))) == 1
    assert learned["heads"] == ["retrieval", "eagle3", "dflash"]
    assert (learned["heads_off"], learned["bad_rows"]) == ([], 0)
    assert isinstance(routed, GoodputPolicy)
    assert routed.needs.hidden


def test_a_shipped_router_is_found_by_its_target(
    router: Path, toy_folder: Path, drafters: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("whiflash.models.shipped.checkpoints_folder", lambda: tmp_path)
    (tmp_path / "toy").mkdir()
    shipped = tmp_path / "toy" / "router.safetensors"
    shipped.write_bytes(router.read_bytes())
    for policy, heads in (("goodput", 3), ("goodput:file=none", 0)):
        with _engine(toy_folder, drafters, policy) as engine:
            plan = engine.plan()
        assert plan["shipped_router"] == str(shipped)
        assert len(plan["routing"]["learned"].get("heads", ())) == heads


@pytest.mark.parametrize("has_hidden", [True, False])
def test_replay_leads_heads_and_network_along_the_survey(
    router: Path, own_work: Path, has_hidden: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(next((own_work / "router").glob("*/rounds.zst")))
    policies = ["goodput", f"goodput:file={router}", "static:arm=eagle3", "entropy:tau=1.0",
                "bandit:reward=efficiency", "rules:rule=trtllm,trim=yes"]  # fmt: skip
    if has_hidden:
        policies.append(f"neural:file={router},trim=yes")
    named = [part for policy in policies for part in ("--policy", policy)]
    states = ["--work-dir", str(own_work)] if has_hidden else []
    assert run(["replay", "rounds", log, *named, *states, "--json"]) == 0
    rows = {row["policy"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["static:arm=none", *policies, "oracle"]
    for row in rows.values():
        assert row["tokens"] == rows["oracle"]["tokens"]
        assert row["censored_arm"] == row["censored_root"] == 0


def test_replay_of_held_out_texts_leaves_out_those_that_were_learned_from(
    router: Path, own_work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(next((own_work / "router").glob("*/rounds.zst")))
    common = ["replay", "rounds", log, "--work-dir", str(own_work), "--json"]
    tokens = []
    for more in ([], ["--held-out"]):
        assert run([*common, *more]) == 0
        tokens.append(json.loads(capsys.readouterr().out)[0]["tokens"])
    answers = [text for text in router_texts(own_work, TEXTS) if text.split == HELD_OUT]
    # The first token of an answer is prefill's.
    assert tokens[1] == sum(len(text.answer) - 1 for text in answers) < tokens[0]


def test_neural_without_features_is_refused_in_a_replay(
    router: Path, own_work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(next((own_work / "router").glob("*/rounds.zst")))
    assert run(["replay", "rounds", log, "--policy", f"neural:file={router}"]) == 2
    assert "give --work-dir" in capsys.readouterr().err
