"""Committed offsets of a group for a topic, read without a member id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_connectors.wire import Cluster, Coordinated
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchTopic

_NOTHING: Final = -1


class Committed(NamedTuple):
    """The next offset to read, and the metadata of its commit."""

    offset: int
    metadata: str


def committed_of(cluster: Cluster, group: str, topic: str, partitions: Iterable[int]) -> dict[int, Committed]:
    """Committed offsets by partition, without partitions that have none. Raises as `fetch_committed` does."""
    found = fetch_committed(cluster, group, topic, partitions)
    return {number: one for number, one in found.items() if one is not None}


def fetch_committed(cluster: Cluster, group: str, topic: str, partitions: Iterable[int]) -> dict[int, Committed | None]:
    """Committed offsets by partition; None: none. It waits until no open transaction can change them.

    Raises WireError.
    """
    asked = OffsetFetchTopic(name=topic, partition_indexes=tuple(partitions))
    reply = cluster.at_coordinator(
        Coordinated.GROUP,
        group,
        OFFSET_FETCH,
        OffsetFetchRequest(group_id=group, topics=(asked,), require_stable=True),
        lambda reply: [reply.error_code, *(row.error_code for one in reply.topics for row in one.partitions)],
    )
    return {
        row.partition_index: None
        if row.committed_offset == _NOTHING
        else Committed(row.committed_offset, row.metadata or "")
        for one in reply.topics
        if one.name == topic
        for row in one.partitions
    }
