"""A cluster of plain processes over the toy model. `inside` runs in a network namespace of its
own, started by test_ray_cluster.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from whiflash.testing.plain_cluster import PlainCluster, write_cluster_config

collect_ignore = [] if os.environ.get("WHIFLASH_TEST_INSIDE") else ["inside"]


@pytest.fixture(scope="session")
def cluster_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cluster_config(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def cluster(cluster_config: Path) -> Iterator[PlainCluster]:
    with PlainCluster(cluster_config, 2) as running:
        yield running
