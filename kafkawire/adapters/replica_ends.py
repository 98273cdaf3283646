"""The ends of replicas' logs, for a controller that elects (RULES K33): local, and from other brokers over peer
connections.

The request is OffsetForLeaderEpoch with a tagged field of kafkawire. A broker of the previous version skips the tag,
and its reply has none. A peer connection is between two registrations, so no reply comes from an earlier process of
that broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.ports import LogEndRequest, ReplicaEnd
from engine.api import TopicIdPartition
from engine.errors import EngineError
from kafkawire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkawire.peers.errors import LinkFailed
from kafkawire.requests.futures import until_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coordinator.api import BrokerInfo
    from engine.api import PartitionStore
    from kafkawire.peers.peers import Peers
    from kafkawire.wire.message import Message

PURPOSE: Final = "replica-ends"
VERSION: Final = 4
PARTITIONS_PER_REQUEST: Final = 1_000
NO_HIGH_WATERMARK: Final = -1  # the high watermark in the reply of a broker that does not know the tagged field


class ClusterReplicaEnds:
    """A `coordinator.ports.ReplicaEnds`. `links` is set during the start; before that, no other broker can be asked."""

    def __init__(self, broker_id: int, store: Callable[[], PartitionStore]) -> None:
        self._broker_id = broker_id
        self._store = store
        self.links: Peers | None = None

    async def ask(self, broker: BrokerInfo, asked: Sequence[LogEndRequest]) -> Mapping[LogEndRequest, ReplicaEnd]:
        """Ask in requests of at most `PARTITIONS_PER_REQUEST` partitions, one after the other. If a request fails,
        return the ends that are known so far."""
        if broker.broker_id == self._broker_id:
            return dict(self._own(asked))
        ends: dict[LogEndRequest, ReplicaEnd] = {}
        for first in range(0, len(asked), PARTITIONS_PER_REQUEST):
            batch = asked[first : first + PARTITIONS_PER_REQUEST]
            if self.links is None or not self.links.is_registered(broker):
                return ends
            pending = self.links.call(broker.broker_id, request_of(batch), VERSION, purpose=PURPOSE)
            await until_settled(pending)
            try:
                ends |= ends_of(pending.result(), batch)
            except LinkFailed:
                return ends
        return ends

    def _own(self, asked: Sequence[LogEndRequest]) -> Iterator[tuple[LogEndRequest, ReplicaEnd]]:
        for one in asked:
            partition = TopicIdPartition(one.topic_id, one.topic, one.partition)
            try:
                yield one, ReplicaEnd(*self._store().replica_end(partition, one.leader_epoch))
            except EngineError:
                continue


def request_of(asked: Sequence[LogEndRequest]) -> OffsetForLeaderEpochRequest:
    """The request for all of these replicas."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for one in asked:
        topic = topics.setdefault(one.topic, OffsetForLeaderTopic(topic=one.topic))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=one.partition,
                current_leader_epoch=one.leader_epoch,
                leader_epoch=one.leader_epoch,
                of_replica=True,
            )
        )
    return OffsetForLeaderEpochRequest(topics=[*topics.values()])


def ends_of(response: Message, asked: Sequence[LogEndRequest]) -> dict[LogEndRequest, ReplicaEnd]:
    """The ends in a broker's reply; none if the broker does not know the tagged field."""
    assert isinstance(response, OffsetForLeaderEpochResponse)
    places = {(one.topic, one.partition): one for one in asked}
    rows = (((topic.topic, row.partition), row) for topic in response.topics for row in topic.partitions)
    return {
        places[place]: ReplicaEnd(row.leader_epoch, row.end_offset, row.high_watermark)
        for place, row in rows
        if place in places and not row.error_code and row.high_watermark != NO_HIGH_WATERMARK
    }
