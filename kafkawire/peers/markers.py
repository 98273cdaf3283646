"""Transaction markers for any partition of the cluster: written here, or sent to its leader with WriteTxnMarkers.

A marker that was sent to a broker without a reply may still be written by it. If another broker leads the partition by
now, that must be ruled out first. Else the first broker could write the marker late, when it leads the partition again
and the producer's next transaction is open, which has the same epoch in the first protocol (RULES C5, K23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.api import NO_LEADER
from coordinator.errors import MarkerNotWritten, StaleProducerEpoch, TransactionCoordinatorFenced, UnknownTopic
from coordinator.futures import SettableFuture
from kafkawire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkawire.peers.batching import RequestBatcher
from kafkawire.peers.errors import LinkFailed
from kafkawire.peers.unknown_outcome import UnknownOutcomes
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import ClusterService, Future
    from coordinator.errors import CoordinatorError
    from coordinator.state.log import StateMarker
    from coordinator.transactions.api import MarkerWriter, Partition
    from kafkawire.peers.peers import Peers
    from kafkawire.wire.message import Message

MARKERS_PER_REQUEST: Final = 1_000

_Key = tuple[int, str, int]  # producer id, topic, partition: the key of a reply


class _DueMarker(NamedTuple):
    """A marker for one partition, and the future of its outcome."""

    marker: StateMarker
    partition: Partition
    answer: SettableFuture[None]

    @property
    def key(self) -> _Key:
        return self.marker.producer_id, self.partition.topic, self.partition.number


class ClusterMarkers:
    """A `MarkerWriter` for the whole cluster; the caller runs `run` in a task.

    `local` writes into partitions that this broker leads. Request handlers use `local` alone: a marker that was sent to
    the wrong broker is not forwarded.
    """

    def __init__(self, local: MarkerWriter, links: Peers, cluster: ClusterService, broker_id: int) -> None:
        self._local = local
        self._cluster = cluster
        self._broker_id = broker_id
        self._unknown_outcomes: UnknownOutcomes[_Key] = UnknownOutcomes(links)
        self._batcher = RequestBatcher(links, _MarkerBatches(self._unknown_outcomes))

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        await self._batcher.run()

    def write(self, marker: StateMarker, partition: Partition) -> Future[None]:
        """See `MarkerWriter`."""
        due = _DueMarker(marker, partition, SettableFuture())
        state = self._cluster.image.partition(partition.topic, partition.number)
        leader = NO_LEADER if state is None else state.leader
        if not self._unknown_outcomes.may_ask(due.key, leader):
            due.answer.settle(MarkerNotWritten(f"who led {partition} before may write it still"))
        elif state is None:
            due.answer.settle(UnknownTopic(partition.topic))
        elif leader == self._broker_id:
            return self._local.write(marker, partition)
        elif leader == NO_LEADER:
            due.answer.settle(MarkerNotWritten(f"{partition} has no leader"))
        else:
            self._unknown_outcomes.note_request(due.key, leader)
            self._batcher.add(leader, due)
        return due.answer


class _MarkerBatches:
    """A `BatchKind` of markers."""

    purpose = "markers"  # of their own: replies never wait behind those of transactions that wait for markers
    version = 2
    items_max = MARKERS_PER_REQUEST

    def __init__(self, unknown_outcomes: UnknownOutcomes[_Key]) -> None:
        self._unknown_outcomes = unknown_outcomes

    def key_of(self, item: _DueMarker) -> _Key:
        """Producer and partition of the marker."""
        return item.key

    def request(self, items: Sequence[_DueMarker]) -> WriteTxnMarkersRequest:
        by_marker: dict[StateMarker, dict[str, list[int]]] = {}
        for one in items:
            by_marker.setdefault(one.marker, {}).setdefault(one.partition.topic, []).append(one.partition.number)
        return WriteTxnMarkersRequest(markers=[_to_message(marker, topics) for marker, topics in by_marker.items()])

    def settle_items(self, items: Sequence[_DueMarker], reply: Future[Message]) -> None:
        try:
            response = reply.result()
        except LinkFailed as error:
            for one in items:
                self._unknown_outcomes.note_lost(one.key, error.sent_by)
                one.answer.settle(MarkerNotWritten(str(error)))
            self._unknown_outcomes.sweep()
            return
        assert isinstance(response, WriteTxnMarkersResponse)
        codes = _codes(response)
        for one in items:
            self._unknown_outcomes.note_reply(one.key)
            one.answer.settle(_error_of(one, codes.get(one.key)))


def _to_message(marker: StateMarker, topics: Mapping[str, list[int]]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.protocol,
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[_Key, int]:
    return {
        (of_producer.producer_id, topic.name, row.partition_index): row.error_code
        for of_producer in response.markers
        for topic in of_producer.topics
        for row in topic.partitions
    }


def _error_of(due: _DueMarker, code: int | None) -> CoordinatorError | None:
    """The error of a code, or None. All other codes are worth another try at the leader of that time: a deleted topic
    is missing in the image."""
    if code == ErrorCode.NONE:
        return None
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return StaleProducerEpoch(f"{due.partition} knows a newer epoch of producer {due.marker.producer_id}")
    if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return TransactionCoordinatorFenced(f"{due.partition} knows a newer epoch of the coordinator")
    return MarkerNotWritten(f"the leader of {due.partition} answers with {code}")
