"""Hot swap where every part is a process, started as users do: another drafter, another policy,
and the same texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whiflash.client import Client
from whiflash.testing.plain_cluster import (
    ROUTER,
    PlainCluster,
    host_drafter,
    write_cluster_config,
)
from whiflash.testing.toy_drafters import write_toy_eagle3
from whiflash.testing.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.serial]

OPTIONS: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One with the first drafter, one with other weights and another policy."""
    base = write_cluster_config(tmp_path_factory.mktemp("swap"), verifiers=1)
    folders = [write_toy_eagle3(base.parent / f"eagle3{n}", seed=n) for n in (1, 2)]
    names = [f"eagle3:{folder},boundaries=1+2,tree=chain" for folder in folders]
    policies = ("goodput", "static:arm=eagle3")
    return [host_drafter(base, *pair) for pair in zip(names, policies, strict=True)]


@pytest.fixture(scope="module")
def cluster(configs: list[Path]) -> Iterator[PlainCluster]:
    with PlainCluster(configs[0], 1, is_fresh=True) as running:
        yield running


def text(cluster: PlainCluster, arm: str | None) -> tuple[str, int]:
    with Client(cluster.grpc_target) as client:
        [choice] = client.generate("tell tell", drafter=arm, **OPTIONS).choices
    usage = choice.ended.usage.arms.get("eagle3")
    return choice.text, 0 if usage is None else usage.drafted


def plan(cluster: PlainCluster) -> dict[str, Any]:
    with Client(cluster.grpc_target) as client:
        found: dict[str, Any] = client.plan()
        return found


def eagle3(cluster: PlainCluster) -> dict[str, Any]:
    found: dict[str, Any] = plan(cluster)["outside"]["drafters"]["eagle3"]
    return found


def test_other_weights_and_another_policy_are_taken_over_by_a_running_verifier(
    cluster: PlainCluster, configs: list[Path]
) -> None:
    plain, _ = text(cluster, "none")
    wait_for(lambda: text(cluster, "eagle3")[1] > 0, 20, "the drafter drafts nothing")
    before, found = plan(cluster), eagle3(cluster)
    cluster.replace("eagle3", configs[1])
    wait_for(lambda: eagle3(cluster)["taken_over"] == 2, 20, "not taken over")
    wait_for(lambda: text(cluster, "eagle3")[1] > 0, 20, "the other one drafts nothing")
    assert eagle3(cluster)["weight_hash"] not in ("", found["weight_hash"])
    cluster.replace(ROUTER, configs[1])

    def follows() -> bool:
        """Until a decision was in time: on a busy machine the snapshot stands in for many."""
        has_drafted, now = text(cluster, None)[1] > 0, plan(cluster)
        is_remote = now["outside"]["router"]["decisions"].get("remote", 0) > 0
        return has_drafted and is_remote and now["policy"] == "static:arm=eagle3"

    wait_for(follows, 20, "the other policy decides nothing")
    after = plan(cluster)
    assert before["policy"] == "goodput"
    assert after["target"]["fingerprint"] == before["target"]["fingerprint"]
    assert {text(cluster, arm)[0] for arm in ("eagle3", "none", None)} == {plain}


def test_a_verifier_without_the_places_of_its_drafters_says_so(configs: list[Path]) -> None:
    pytest.importorskip("ray")
    from services.config import ClusterSettings
    from services.process import parts_elsewhere
    from whiflash.core.errors import ConfigError

    settings = ClusterSettings.load(configs[0])
    with pytest.raises(ConfigError, match=r"\[cluster.drafters\] eagle3"):
        parts_elsewhere(settings, "", "127.0.0.1:1")
    with pytest.raises(ConfigError, match="--router and"):
        parts_elsewhere(settings, "eagle3=127.0.0.1:1", "")
