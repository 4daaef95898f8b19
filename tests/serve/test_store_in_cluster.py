"""TrajectoryService at a gateway, over the Redis that all verifiers share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whiflash.client import Client
from whiflash.testing.plain_cluster import PlainCluster, write_cluster_config
from whiflash.testing.redis_server import MISSING, RedisServer, has_redis_server
from whiflash.testing.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.serial]

OPTIONS: dict[str, Any] = {"max_tokens": 80, "ignore_eos": True, "seed": 3, "temperature": 1.0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not has_redis_server():
        pytest.skip(MISSING)
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def cluster(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainCluster]:
    path: Path = write_cluster_config(tmp_path_factory.mktemp("cluster"), verifiers=2)
    text = path.read_text(encoding="utf-8").replace('store = "memory"', f'store = "{url}"')
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_STORE_KEYS", "k1:" + "s" * 40)
        with PlainCluster(path, 2) as running:
            yield running


def test_what_verifiers_wrote_is_counted_exported_and_deleted_at_the_gateway(
    cluster: PlainCluster,
) -> None:
    with Client(cluster.grpc_target) as client:
        [choice] = client.generate("tell me", run_id="a run", **OPTIONS).choices

        def turns() -> int:
            return sum(space.num_records for space in client.store.stats())

        wait_for(lambda: turns() == 1, 10, "the turn is not counted")
        [line] = client.store.export()
        assert line["tokens"] == list(choice.token_ids)
        known = client.store.add([line])
        assert (known.num_added, known.num_known, len(known.bad)) == (0, 1, 0)
        time.sleep(0.5)  # verifiers tail the log
        [other] = client.generate("tell me", drafter="retrieval", no_store=True, **OPTIONS).choices
        assert other.token_ids == choice.token_ids
        assert other.ended.usage.arms["retrieval"].accepted > 0
        assert client.store.delete(run_id="a run").num_turns == 1
        wait_for(lambda: turns() == 0, 10, "the turn is not deleted")
        assert list(client.store.export()) == []
