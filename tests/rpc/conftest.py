"""The toy target, its two neural drafters on disk, and an event loop for links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.protocols import TapDrafter
from whiflash.rpc.loop import RpcLoop
from whiflash.target.load import LoadedTarget, load_target
from whiflash.testing.hosts import drafter_server, toy_drafter
from whiflash.testing.toy import write_toy
from whiflash.testing.toy_drafters import write_toy_dflash, write_toy_eagle3

NAMES = ("eagle3", "dflash")


@dataclass(frozen=True)
class ToyWorld:
    """A loaded toy target that keeps the taps of both drafters, and where all of it lies."""

    loaded: LoadedTarget
    folder: Path
    drafter_folders: dict[str, Path]
    locals: dict[str, TapDrafter]

    @property
    def model(self) -> str:
        return self.loaded.target.info.fingerprint

    @property
    def tokenizer(self) -> str:
        return self.loaded.tokenizer.fingerprint

    def make(self, name: str) -> TapDrafter:
        return toy_drafter(name, self.folder, self.drafter_folders[name])

    def server(self, name: str, **options: Any) -> Callable[[], Any]:
        """For a ThreadHost."""
        return lambda: drafter_server(
            lambda: self.make(name), self.model, self.tokenizer, **options
        )

    def options(self, name: str) -> dict[str, Any]:
        """For a ProcessHost."""
        return {
            "name": name, "target": str(self.folder), "drafter": str(self.drafter_folders[name]),
            "model": self.model, "tokenizer": self.tokenizer,
        }  # fmt: skip


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> ToyWorld:
    folder = write_toy(tmp_path_factory.mktemp("toy"))
    drafters = tmp_path_factory.mktemp("drafters")
    folders = {
        "eagle3": write_toy_eagle3(drafters / "e"), "dflash": write_toy_dflash(drafters / "d"),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHIFLASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        loaded = load_target(str(folder), dtype="float64")
    drafters_by_name = {name: toy_drafter(name, folder, folders[name]) for name in NAMES}
    for drafter in drafters_by_name.values():
        loaded.target.keep_taps(drafter.weight_hash, drafter.boundaries, drafter.fuse)
    return ToyWorld(loaded, folder, folders, drafters_by_name)


@pytest.fixture
def loop() -> Iterator[RpcLoop]:
    made = RpcLoop()
    yield made
    made.close()


def _requests(
    num: int, max_tokens: int = 40, drafter: str | None = None
) -> list[GenerationRequest]:
    """Different prompts; every second one is sampled."""
    return [
        GenerationRequest(
            tuple(range(5 + number, 30 + number)),
            SamplingParams(
                max_tokens=max_tokens, ignore_eos=True, seed=number,
                temperature=0.8 * (number % 2),
            ),
            drafter=drafter,
        )
        for number in range(num)
    ]  # fmt: skip


@pytest.fixture
def ask() -> Callable[..., list[GenerationRequest]]:
    """`ask(num, max_tokens, drafter)`."""
    return _requests
