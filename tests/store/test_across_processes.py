"""Engines in processes of their own over one store: what one wrote another drafts, and after all
of them are gone those that come next draft it as well."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whiflash.testing.toy import write_toy
from whiflash.trajectories.scope_keys import VARIABLE, new_scope_key

SCRIPT = Path(__file__).with_name("engine_process.py")
PROMPTS = ["what was it again", "the quick brown fox", "one two three", "never seen before"]
KEPT = 0.95
END_S = 30.0


class EngineProcess:
    """The test's end of one, which goes on loading after it was made."""

    def __init__(self, model: Path, store: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(model), store],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(PROMPTS) + "\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert said["is_settled"]
        return said

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(VARIABLE, new_scope_key("test"))
        yield write_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def in_one_process(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first run and the second one."""
    alone = EngineProcess(model, "memory")
    cold, warm = alone.run(), alone.run()
    alone.close()
    assert warm["tokens_per_round"] > 2 * cold["tokens_per_round"], "nothing to share"
    return cold, warm


@pytest.fixture
def start(model: Path) -> Iterator[Callable[[str], EngineProcess]]:
    started: list[EngineProcess] = []

    def begin(store: str) -> EngineProcess:
        started.append(EngineProcess(model, store))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def test_two_engines_and_one_redis_also_after_both_were_restarted(
    server: Any,
    start: Callable[[str], EngineProcess],
    in_one_process: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """vllm RFC 18037: suffix trees per replica were silos, and cold after a restart."""
    cold, warm = in_one_process
    one, other = start(server.url), start(server.url)
    taught, drafted = one.run(), other.run()
    assert (taught["known"], drafted["known"]) == (0, warm["known"])
    one.close()
    other.close()
    both = start(server.url), start(server.url)
    again = [process.run() for process in both]
    for said in (drafted, *again):
        assert said["tokens_per_round"] >= KEPT * warm["tokens_per_round"]
    assert all(said["texts"] == cold["texts"] for said in (warm, taught, drafted, *again))


def test_a_file_store_after_a_restart(
    tmp_path: Path,
    start: Callable[[str], EngineProcess],
    in_one_process: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    cold, warm = in_one_process
    first = start(str(tmp_path / "store"))
    taught = first.run()
    first.close()
    again = start(str(tmp_path / "store")).run()
    assert (taught["known"], again["known"]) == (0, warm["known"])
    assert again["tokens_per_round"] >= KEPT * warm["tokens_per_round"]
    assert taught["texts"] == again["texts"] == cold["texts"]
