"""Serve's own router, which also hands on the addresses of the replicas that run. Tokens do not
pass through it: gateways talk to these addresses.

Serve pickles this module by value, so it holds no state: services.directory does."""

from __future__ import annotations

from collections.abc import Sequence

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import RunningReplica

from services import directory


class AddressRouter(PowerOfTwoChoicesRequestRouter):
    """For handles to verifiers, drafters and the router."""

    def update_replicas(self, replicas: Sequence[RunningReplica]) -> None:
        """Called by Serve with all replicas that run, on its own thread."""
        super().update_replicas(list(replicas))
        metadata = [replica.replica_metadata for replica in replicas]
        directory.publish(
            self._deployment_id.name,
            [entry[directory.ADDRESS] for entry in metadata if directory.ADDRESS in entry],
        )
