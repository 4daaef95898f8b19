"""Seeded turns while something is killed or spoilt, and what a run of them showed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from whiflash.client import AsyncClient, Ended, Piece
from whiflash.testing.fault_cluster import ARMS, FaultCluster

NUM_TURNS = 50
OPTIONS: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, "temperature": 1.0}
MAX_RETRIES = 20
Text = tuple[tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class FaultRun:
    """drafted_before, drafted_after: tokens drafted by each arm. moves: turns that went on at
    another verifier. leaks: what was held at the end."""

    fault: str
    turns: int
    equal: int
    moves: int
    drafted_before: dict[str, int]
    drafted_after: dict[str, int]
    leaks: list[str]
    undisturbed_s: float
    seconds: float
    recovery_s: float

    @property
    def is_sound(self) -> bool:
        """All that a fault must leave as it was."""
        drafts = [
            d.get(arm, 0) > 0 for d in (self.drafted_before, self.drafted_after) for arm in ARMS
        ]
        return self.equal == self.turns and all(drafts) and not self.leaks

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "is_sound": self.is_sound}


async def _turn(
    client: AsyncClient, number: int, drafted: Counter[str], note: Callable[[], None], **more: Any
) -> Text:
    """Pinned to an arm, every fourth one routed."""
    arms: dict[str, Any] = {} if number % 4 == 3 else {"drafter": ARMS[number % 4]}
    ids: list[int] = []
    text, ends = "", 0
    prompt = f"turn {number}: tell a story, tell a story"
    async for event in client.stream(prompt, seed=number, **{**OPTIONS, **arms, **more}):
        if isinstance(event, Piece):
            ids.extend(event.token_ids)
            text += event.text
            note()
        elif isinstance(event, Ended):
            ends += 1
            for arm, usage in event.usage.arms.items():
                drafted[arm] += usage.drafted
    assert ends == 1, "a turn did not end once"
    return tuple(ids), text


async def _turns(
    target: str, num: int, drafted: Counter[str], fault: Callable[[], None] | None, **more: Any
) -> list[Text | BaseException]:
    """The fault comes when a fifth of the turns have begun to answer."""
    pieces, has_begun = Counter[str](), asyncio.Event()

    def note() -> None:
        pieces["all"] += 1
        if pieces["all"] > num // 5:
            has_begun.set()

    async with AsyncClient(target, max_retries=MAX_RETRIES) as client:
        tasks = [
            asyncio.create_task(_turn(client, number, drafted, note, **more))
            for number in range(num)
        ]
        if fault is not None:
            await has_begun.wait()
            await asyncio.to_thread(fault)
        return await asyncio.gather(*tasks, return_exceptions=True)


class FaultBench:
    """Runs faults one after the other on one cluster, against texts of an undisturbed run."""

    def __init__(self, cluster: FaultCluster, num_turns: int = NUM_TURNS) -> None:
        self.cluster = cluster
        self._num = num_turns
        began_s = time.monotonic()
        self._texts = asyncio.run(_turns(cluster.target, num_turns, Counter(), None))
        self._undisturbed_s = time.monotonic() - began_s
        for text in self._texts:
            if isinstance(text, BaseException):
                raise text

    def run(
        self, name: str, fault: Callable[[], None], heal: Callable[[], None], num: int = NUM_TURNS
    ) -> FaultRun:
        """`heal` is called a moment after the fault. num: turns, at most those of the bench."""
        num = min(num, self._num)
        before = self._drafts()
        moves = self._moves()
        began_s = time.monotonic()

        def disturb() -> None:
            fault()
            time.sleep(0.3)
            heal()

        texts = asyncio.run(_turns(self.cluster.target, num, Counter(), disturb))
        took_s = time.monotonic() - began_s
        self.cluster.wait_healthy()
        recovery_s = time.monotonic() - began_s
        after = self._drafts()
        pairs = zip(texts, self._texts[:num], strict=True)
        return FaultRun(
            name, num, sum(mine == other for mine, other in pairs),
            max(0, self._moves() - moves), before, after, self.cluster.leaks(),
            round(self._undisturbed_s, 2), round(took_s, 2), round(recovery_s, 2),
        )  # fmt: skip

    def _drafts(self) -> dict[str, int]:
        drafted: Counter[str] = Counter()
        asyncio.run(_turns(self.cluster.target, 2 * len(ARMS) + 2, drafted, None, max_tokens=30))
        return {arm: drafted[arm] for arm in ARMS}

    def _moves(self) -> int:
        """As the present gateway counts them."""
        return int(self.cluster.metrics().get("whiflash_moves_total", 0))
