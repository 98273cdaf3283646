"""What a group has committed of a topic: asked as somebody who is no member of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from spark_connectors.wire import Cluster, Coordinated
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchTopic

_NOTHING: Final = -1


class Committed(NamedTuple):
    """The next offset to read, and what was noted with it."""

    offset: int
    metadata: str


def committed_of(cluster: Cluster, group: str, topic: str, partitions: Iterable[int]) -> dict[int, Committed]:
    """By partition, of those that it has committed. Raises as `fetch_committed`."""
    found = fetch_committed(cluster, group, topic, partitions)
    return {number: one for number, one in found.items() if one is not None}


def fetch_committed(cluster: Cluster, group: str, topic: str, partitions: Iterable[int]) -> dict[int, Committed | None]:
    """By partition, of those that the answer tells of; None: nothing. What a transaction may still change is waited
    for.

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
