"""The Redis user that docs/trajectories.md tells to make can do all that the store does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whiflash.trajectories.deletion import Deletion, DeletionKind
from whiflash.trajectories.log import START, LogLevel
from whiflash.trajectories.record import TrajectoryRecord
from whiflash.trajectories.redis_log import RedisLog

DOCS = Path(__file__).parents[2] / "docs" / "trajectories.md"


@pytest.fixture
def url(server: Any) -> Iterator[str]:
    found = re.search(r"^ *ACL SETUSER whiflash on >PASSWORD (.*)$", DOCS.read_text(), re.MULTILINE)
    assert found is not None
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "whiflash", "on", ">PASSWORD", *found[1].split())
    yield f"redis://whiflash:PASSWORD@127.0.0.1:{server.port}/0"
    with server.client() as client:
        denied = [entry for entry in client.acl_log() if entry["username"] == "whiflash"]
    assert denied == [], "something was refused that nobody looked at"


def test_the_rights_in_the_docs_are_enough(url: str) -> None:
    with closing(RedisLog.connect(url)) as log:
        for run in ("r1", "r2"):
            log.append(TrajectoryRecord("space", run, np.arange(20)))
        assert log.flush(10)
        log.trim("space")
        assert [record.run_id for record in log.read("space", START).records] == ["r1", "r2"]
        log.delete(Deletion("space", DeletionKind.RUN, "r1"))
        assert [record.run_id for record in log.read("space", START).records] == ["r2"]
        assert log.namespaces() == ("space",)
        assert log.wait({"space": START}, 5.0)
        log.delete(Deletion("space", DeletionKind.NAMESPACE, ""))
        assert log.read("space", START).records == ()
        assert log.status().level is LogLevel.SHARED
        assert (log.status().num_failures, log.status().last_error) == (0, "")
