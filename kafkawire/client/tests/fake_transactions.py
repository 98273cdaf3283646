"""A FakeCluster whose coordinators have transactional ids, and whose partitions have producers."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from kafkawire.client.connection import Address
from kafkawire.client.tests.fake_cluster import FakeCluster, FakeLog
from kafkawire.messages import describe_producers, describe_transactions, list_transactions, write_txn_markers
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.wire.message import Message

NOW_MS = 1_700_000_060_000
STATES = {"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}


@dataclass
class FakeTransaction:
    """A transactional id. `started_ms` is -1 before its first transaction."""

    state: str = "Ongoing"
    producer_id: int = 1000
    producer_epoch: int = 2
    started_ms: int = NOW_MS - 60_000
    partitions: dict[str, list[int]] = field(default_factory=dict)
    coordinator: int = 1


@dataclass
class FakeProducer:
    """Producer in a partition. Its transaction is open there unless `start_offset` is -1."""

    producer_id: int = 1000
    start_offset: int = -1
    coordinator_epoch: int = -1
    producer_epoch: int = 2
    last_timestamp: int = NOW_MS


class FakeTransactions(FakeCluster):
    """`producers` are by topic and partition; `markers` are the written markers."""

    def __init__(self, broker_count: int = 1) -> None:
        super().__init__(broker_count)
        self.transactions: dict[str, FakeTransaction] = {}
        self.producers: dict[tuple[str, int], list[FakeProducer]] = defaultdict(list)
        self.markers: list[write_txn_markers.WritableTxnMarker] = []
        self._answers |= {
            27: self._write_txn_markers,
            61: self._describe_producers,
            65: self._describe_transactions,
            66: self._list_transactions,
        }

    def _find_coordinator(self, address: Address, request: Any, version: int) -> Message:
        assert request.key_type == 1
        refused = self._refusal(10)
        coordinators = []
        for key in request.coordinator_keys:
            place = self.addresses[self.transactions.get(key, FakeTransaction()).coordinator]
            coordinators.append(Coordinator(key=key, host=place.host, port=place.port, error_code=refused))
        return FindCoordinatorResponse(coordinators=coordinators)

    def _list_transactions(self, address: Address, request: Any, version: int) -> Message:
        pattern = request.transactional_id_pattern or ".*"
        refused = ErrorCode.INVALID_REGULAR_EXPRESSION if pattern == "(" else self._refusal(66)
        if refused:
            return list_transactions.ListTransactionsResponse(error_code=refused)
        return list_transactions.ListTransactionsResponse(
            unknown_state_filters=sorted(set(request.state_filters) - STATES),
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=name, producer_id=one.producer_id, transaction_state=one.state
                )
                for name, one in self.transactions.items()
                if self.addresses[one.coordinator] == address
                and one.state in (request.state_filters or [one.state])
                and NOW_MS - one.started_ms > request.duration_filter
                and re.fullmatch(pattern, name)
            ],
        )

    def _describe_transactions(self, address: Address, request: Any, version: int) -> Message:
        return describe_transactions.DescribeTransactionsResponse(
            transaction_states=[self._transaction(address, name) for name in request.transactional_ids]
        )

    def _transaction(self, address: Address, name: str) -> describe_transactions.TransactionState:
        one = self.transactions.get(name)
        code = self._refusal(65) or (0 if one else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if code or one is None:
            return describe_transactions.TransactionState(transactional_id=name, error_code=code)
        assert self.addresses[one.coordinator] == address
        return describe_transactions.TransactionState(
            transactional_id=name,
            transaction_state=one.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=one.started_ms,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            topics=[
                describe_transactions.TopicData(topic=topic, partitions=numbers)
                for topic, numbers in one.partitions.items()
            ],
        )

    def _describe_producers(self, address: Address, request: Any, version: int) -> Message:
        (topic,) = request.topics
        (number,) = topic.partition_indexes
        row = describe_producers.PartitionResponse(partition_index=number, error_code=self._refusal(61))
        assert self.addresses[self._log(topic.name, number).leader] == address
        if not row.error_code:
            row.active_producers = [
                describe_producers.ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.producer_epoch,
                    last_timestamp=one.last_timestamp,
                    coordinator_epoch=one.coordinator_epoch,
                    current_txn_start_offset=one.start_offset,
                )
                for one in self.producers[topic.name, number]
            ]
        rows = [describe_producers.TopicResponse(name=topic.name, partitions=[row])]
        return describe_producers.DescribeProducersResponse(topics=rows)

    def _write_txn_markers(self, address: Address, request: Any, version: int) -> Message:
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        assert self.addresses[self._log(topic.name, number).leader] == address
        refused = self._refusal(27)
        if not refused:
            self.markers.append(marker)
            for one in self.producers[topic.name, number]:
                if (one.producer_id, one.producer_epoch) == (marker.producer_id, marker.producer_epoch):
                    one.start_offset, one.coordinator_epoch = -1, marker.coordinator_epoch
        row = write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=number, error_code=refused)
        rows = [write_txn_markers.WritableTxnMarkerTopicResult(name=topic.name, partitions=[row])]
        result = write_txn_markers.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=rows)
        return write_txn_markers.WriteTxnMarkersResponse(markers=[result])

    def _log(self, topic: str, number: int) -> FakeLog:
        return self.topics[topic][number]
