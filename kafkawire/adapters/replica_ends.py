"""Asks where the logs of replicas end, for a controller that elects (RULES K33): here, and over links to others.

The request is OffsetForLeaderEpoch with a tagged field of our own. A broker of the version before skips the tag, and
its answer has none. A link is between two registrations, so no answer comes from an earlier life of its broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.ports import AskedEnd, ReplicaEnd
from engine.api import TopicPartition
from engine.errors import EngineError
from kafkawire.links.errors import LinkFailed
from kafkawire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkawire.requests.settleable import until_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coordinator.api import BrokerInfo
    from engine.api import PartitionStore
    from kafkawire.links.links import Links
    from kafkawire.wire.message import Message

PURPOSE: Final = "replica-ends"
VERSION: Final = 4
PARTITIONS_PER_REQUEST: Final = 1_000
UNTOLD: Final = -1  # the high watermark of a broker that does not know the question


class ClusterReplicaEnds:
    """See `coordinator.ports.ReplicaEnds`. `links` are there when this broker has started so far: before, the other
    brokers tell nothing."""

    def __init__(self, broker_id: int, store: Callable[[], PartitionStore]) -> None:
        self._broker_id = broker_id
        self._store = store
        self.links: Links | None = None

    async def ask(self, broker: BrokerInfo, asked: Sequence[AskedEnd]) -> Mapping[AskedEnd, ReplicaEnd]:
        """As many in a request as it holds, one request after the other."""
        if broker.broker_id == self._broker_id:
            return dict(self._own(asked))
        told: dict[AskedEnd, ReplicaEnd] = {}
        for first in range(0, len(asked), PARTITIONS_PER_REQUEST):
            batch = asked[first : first + PARTITIONS_PER_REQUEST]
            if self.links is None or not self.links.is_to(broker):
                return told
            pending = self.links.call(broker.broker_id, request_of(batch), VERSION, purpose=PURPOSE)
            await until_settled(pending)
            try:
                told |= told_of(pending.result(), batch)
            except LinkFailed:
                return told
        return told

    def _own(self, asked: Sequence[AskedEnd]) -> Iterator[tuple[AskedEnd, ReplicaEnd]]:
        for one in asked:
            partition = TopicPartition(one.topic_id, one.topic, one.partition)
            try:
                yield one, ReplicaEnd(*self._store().replica_end(partition, one.leader_epoch))
            except EngineError:
                continue


def request_of(asked: Sequence[AskedEnd]) -> OffsetForLeaderEpochRequest:
    """For all of these."""
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


def told_of(response: Message, asked: Sequence[AskedEnd]) -> dict[AskedEnd, ReplicaEnd]:
    """What a broker tells of these, as far as it knows the question."""
    assert isinstance(response, OffsetForLeaderEpochResponse)
    places = {(one.topic, one.partition): one for one in asked}
    rows = (((topic.topic, row.partition), row) for topic in response.topics for row in topic.partitions)
    return {
        places[place]: ReplicaEnd(row.leader_epoch, row.end_offset, row.high_watermark)
        for place, row in rows
        if place in places and not row.error_code and row.high_watermark != UNTOLD
    }
