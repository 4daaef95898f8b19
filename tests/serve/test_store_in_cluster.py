"""TrajectoryService and leases at gateways, over the Redis that all verifiers share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whiflash.client import Client, Piece, StreamEvent
from whiflash.testing.plain_cluster import PlainCluster, write_cluster_config
from whiflash.testing.redis_server import RedisServer
from whiflash.testing.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.serial]

OPTIONS: dict[str, Any] = {"max_tokens": 80, "ignore_eos": True, "seed": 3, "temperature": 1.0}


@pytest.fixture(scope="module")
def redis_server(
    needs_redis: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlainCluster]:
    path: Path = write_cluster_config(tmp_path_factory.mktemp("cluster"), verifiers=2)
    store = f'store = "{redis_server.url}"'
    text = path.read_text(encoding="utf-8").replace('store = "memory"', store)
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


def text_of(event: StreamEvent) -> str:
    return event.text if isinstance(event, Piece) else ""


def test_two_gateways_and_two_verifiers_claim_one_session(
    cluster: PlainCluster, redis_server: RedisServer
) -> None:
    """The lease tells the second gateway where the session is. Where it is told otherwise in the
    middle of a turn, both verifiers have the session, and all texts are those without one."""
    first_target = cluster.grpc_target
    cluster.start_gateway()
    with redis_server.client() as client:
        for left in client.keys("dr:lease:*"):
            client.delete(left)
    with Client(first_target) as here, Client(cluster.grpc_target) as there:
        leases = [f"{v['address']} {v['incarnation']}" for v in here.plan()["cluster"]["verifiers"]]
        prompt, seen = "tell me", set()
        for _ in range(4):
            [alone] = here.generate(prompt, drafter="none", no_store=True, **OPTIONS).choices
            stream = here.stream(prompt, run_id="claimed", **OPTIONS)
            begun = next(stream)
            with redis_server.client() as client:
                wait_for(lambda: client.keys("dr:lease:*"), 10, "no lease")
                [key] = client.keys("dr:lease:*")
                mine = client.get(key).decode()
                [theirs] = [lease for lease in leases if lease != mine]
                client.set(key, theirs)
                [other] = there.generate(prompt, run_id="claimed", **OPTIONS).choices
                assert client.get(key).decode() == theirs
            seen |= {mine, theirs}
            text = "".join(text_of(event) for event in (begun, *stream))
            assert text == other.text == alone.text
            prompt += text
        assert seen == set(leases)
