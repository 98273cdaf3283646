"""Placement of a new topic's replicas: striped over the brokers, and over the racks where brokers name theirs.

Pure; the caller draws `start`, so that small topics do not all begin on the same broker. As in Kafka
(StripedReplicaPlacer), leaders go round the brokers, the replicas of a partition lie on different racks as far as there
are racks, and followers shift with every round so that the partitions of one leader do not share all followers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.errors import InvalidReplicationFactor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import BrokerInfo


def place(
    partition_count: int, replication_factor: int, brokers: Sequence[BrokerInfo], start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises InvalidReplicationFactor."""
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
        )
    ring = _alternate_racks(brokers)
    return [_replicas(ring, start, partition, replication_factor) for partition in range(partition_count)]


def _replicas(ring: Sequence[BrokerInfo], start: int, partition: int, count: int) -> tuple[int, ...]:
    leader = (start + partition) % len(ring)
    shift = partition // len(ring)
    others = [ring[(leader + 1 + (shift + step) % (len(ring) - 1)) % len(ring)] for step in range(len(ring) - 1)]
    chosen = [ring[leader]]
    for fresh_rack_only in (True, False):
        for broker in others:
            used = {other.rack for other in chosen if other.rack is not None}
            if len(chosen) < count and broker not in chosen and not (fresh_rack_only and broker.rack in used):
                chosen.append(broker)
    return tuple(broker.broker_id for broker in chosen)


def _alternate_racks(brokers: Sequence[BrokerInfo]) -> list[BrokerInfo]:
    """The brokers in an order that takes one of each rack in turn, so that leaders alternate racks too."""
    racks: dict[str, list[BrokerInfo]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    ring: list[BrokerInfo] = []
    for place_in_rack in range(max(map(len, racks.values()), default=0)):
        ring.extend(rack[place_in_rack] for _, rack in sorted(racks.items()) if place_in_rack < len(rack))
    return ring
