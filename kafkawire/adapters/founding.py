"""What all brokers of a cluster have to go by alike, and the first one that is configured for it says.

A leader and the controller both count who is in sync. As in Kafka since there are eligible leader replicas (KIP-966),
the value of a server.properties becomes the cluster's own once, and from then on that one counts.
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


async def found(cluster: ClusterService, given: Mapping[str, str]) -> None:
    """`given`: what this broker is configured for. Raises MetadataUnavailable."""
    wanted = given.get(FOUNDED)
    if wanted is None:
        return
    known = cluster.image.broker_configs.get(CLUSTER_DEFAULT, {}).get(FOUNDED)
    if known is None:
        await cluster.alter_broker_configs(CLUSTER_DEFAULT, [ConfigChange(ConfigOperation.SET, FOUNDED, wanted)])
    elif known != wanted:
        _log.warning("configured value ignored", key=FOUNDED, configured=wanted, cluster=known)
