"""`whiflash demo --redis` with the real model: a second process drafts what the first one wrote,
so does one that comes after both, the text is the same, and nothing is left behind. The identical
repeat is in test_store_suite.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whiflash.bench.redis_process import redis_server
from whiflash.cli.main import run
from whiflash.trajectories.scope_keys import VARIABLE


def test_other_processes_draft_what_one_wrote_and_the_demo_cleans_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    monkeypatch.delenv(VARIABLE, raising=False)
    with redis_server() as address:
        if address is None:
            pytest.skip("redis-server is missing; install the package redis-server")
        size = ["--kind", "writing", "--turns", "1", "--no-repeat", "--dtype", "bfloat16"]
        size += ["--drafter", "retrieval"]  # what the store is for; the others would cost time
        arguments = ["demo", "--redis", address.url, *size, "--json"]
        assert run(arguments) == 0
        with redis.Redis(unix_socket_path=str(address.socket)) as client:
            left = [client.xlen(key) for key in client.scan_iter("dr:*:log")]
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["same_text"] is True
    assert found["store"]["kind"] == "redis"
    cold, other, restarted = (found[key] for key in ("cold", "warm_other_process", "after_restart"))
    assert cold["known_tokens"] == 0
    assert other["known_tokens"] == restarted["known_tokens"] > 0
    assert len({one["process"] for one in (cold, other, restarted)}) == 3
    assert cold["tokens"] == other["tokens"] == restarted["tokens"]
    for warm in (other, restarted):
        assert warm["accepted_length"] > cold["accepted_length"]
    assert left, "there was something to delete"
    assert all(length <= 1 for length in left), "tombstones alone are left"
