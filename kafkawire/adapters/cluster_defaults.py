"""Adoption of the cluster's default of `min.insync.replicas` from the first broker that has it in its configuration.

The leader and the controller count the replicas in sync by the same value. As in Kafka since KIP-966 (eligible leader
replicas), a value in server.properties becomes the cluster's default once; from then on only that default counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.api import ClusterService

FOUNDED: Final = "min.insync.replicas"

_log = structlog.get_logger(__name__)


async def adopt(cluster: ClusterService, given: Mapping[str, str]) -> None:
    """Make the configured value the cluster's default, or warn if the cluster has another one. `given`: the properties
    of this broker's configuration. Raises MetadataUnavailable."""
    wanted = given.get(FOUNDED)
    if wanted is None:
        return
    known = cluster.image.broker_configs.get(CLUSTER_DEFAULT, {}).get(FOUNDED)
    if known is None:
        await cluster.alter_broker_configs(CLUSTER_DEFAULT, [ConfigChange(ConfigOperation.SET, FOUNDED, wanted)])
    elif known != wanted:
        _log.warning("configured value ignored", key=FOUNDED, configured=wanted, cluster=known)
