"""Where the servers of a replica listen."""

from __future__ import annotations

import ray

from services.config import NODE


def listen_host(host: str) -> str:
    """`cluster.host` as an address of this machine."""
    return str(ray.util.get_node_ip_address()) if host == NODE else host
