"""The conformance tests of the front ends, unchanged, against a cluster of plain processes."""

from __future__ import annotations

import pytest

from whiflash.testing.conformance import run_conformance
from whiflash.testing.plain_cluster import PlainCluster

pytestmark = [pytest.mark.slow, pytest.mark.serial]


def test_http_and_grpc(cluster: PlainCluster) -> None:
    run_conformance(cluster.url, cluster.grpc_target)
