"""The thread of a hosted drafter tells how much of its time it is at work."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from whiflash.rpc.drafter_desk import DraftDesk
from whiflash.testing.drafters import RandomDrafter

IDLE_S = 0.2


def test_time_at_work_is_counted_and_waiting_is_not() -> None:
    started = time.perf_counter()
    with closing(DraftDesk(lambda: RandomDrafter(64), 2**20)) as desk:
        time.sleep(IDLE_S)
        for _ in range(4):
            done = threading.Event()
            desk.submit(lambda: time.sleep(0.02))
            desk.submit(done.set)
            assert done.wait(10)
    assert 0.06 <= desk.busy_s <= time.perf_counter() - started - IDLE_S
