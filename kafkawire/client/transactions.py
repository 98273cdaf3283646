"""Transactions for administrators: list, describe, find open ones in a partition, abort one (KIP-664).

The coordinator knows a transaction by its transactional id, each partition knows it by its producer. They may disagree:
a *hanging* transaction is open in a partition, and its coordinator does not know it any more. It is aborted only in
that partition, like by `kafka-transactions`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafkawire.client.cluster import Cluster, Coordinated
from kafkawire.client.connection import Address, Connection
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from kafkawire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kafkawire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkawire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class TransactionListing(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The last transaction of a transactional id. `started_ms` is None if none has begun yet."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    coordinator: Address
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """Open transaction in one partition.

    `coordinator_epoch` is None if the producer has ended no transaction there yet.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp_ms: int | None


async def list_transactions(
    cluster: Cluster, states: Collection[str] = (), longer_than_ms: int | None = None, pattern: str | None = None
) -> list[TransactionListing]:
    """Transactions of all brokers, by transactional id; brokers read `pattern` as RE2. Raises ClientError."""
    # Version 1 has the duration (KIP-994), version 2 the pattern (KIP-1152).
    at_least = 2 if pattern is not None else 1 if longer_than_ms is not None else 0

    async def ask(connection: Connection) -> list[TransactionListing] | Refusal:
        request = ListTransactionsRequest(
            state_filters=list(states),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        answer = await connection.call(request, ListTransactionsResponse, at_least=at_least)
        if answer.error_code:
            return refusal(answer.error_code)
        return [
            TransactionListing(one.transactional_id, one.transaction_state, one.producer_id)
            for one in answer.transaction_states
        ]

    listed: list[TransactionListing] = []
    for address, answer in (await cluster.at_brokers(ask)).items():
        if isinstance(answer, Refusal):
            raise ClientError(f"{address} does not list its transactions: {answer}")
        listed += answer
    return sorted(listed)


async def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, Transaction | Refusal]:
    """Descriptions of transactions; TRANSACTIONAL_ID_NOT_FOUND for unknown ids."""

    async def ask(connection: Connection, keys: list[str]) -> dict[str, Transaction | Refusal]:
        request = DescribeTransactionsRequest(transactional_ids=keys)
        answer = await connection.call(request, DescribeTransactionsResponse)
        return {one.transactional_id: _transaction(one, connection.address) for one in answer.transaction_states}

    return await cluster.at_coordinators(transactional_ids, ask, Coordinated.TRANSACTIONAL_ID)


def _transaction(one: TransactionState, coordinator: Address) -> Transaction | Refusal:
    if one.error_code:
        return refusal(one.error_code)
    return Transaction(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
        coordinator,
        sorted(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
    )


async def open_transactions(cluster: Cluster, partition: TopicPartition) -> list[OpenTransaction] | Refusal:
    """Open transactions as the partition's leader knows them, the oldest first."""

    async def ask(
        connection: Connection, keys: list[TopicPartition]
    ) -> dict[TopicPartition, list[OpenTransaction] | Refusal]:
        topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
        answer = await connection.call(DescribeProducersRequest(topics=[topic]), DescribeProducersResponse)
        rows = [(TopicPartition(one.name, row.partition_index), row) for one in answer.topics for row in one.partitions]
        return {one: _open(one, row) for one, row in rows}

    return (await cluster.at_leaders([partition], ask))[partition]


def _open(partition: TopicPartition, row: PartitionResponse) -> list[OpenTransaction] | Refusal:
    if row.error_code:
        return refusal(row.error_code, row.error_message)
    found = [
        OpenTransaction(
            partition,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
            one.current_txn_start_offset,
            one.last_timestamp if one.last_timestamp >= 0 else None,
        )
        for one in row.active_producers
        if one.current_txn_start_offset >= 0
    ]
    return sorted(found, key=lambda one: one.start_offset)


async def abort_transaction(cluster: Cluster, one: OpenTransaction) -> Refusal | None:
    """Abort a transaction in its partition only; its coordinator is not asked. None for success."""

    async def ask(connection: Connection, keys: list[TopicPartition]) -> dict[TopicPartition, Refusal | None]:
        marker = WritableTxnMarker(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=one.partition.topic, partition_indexes=[one.partition.partition])],
            # No coordinator epoch is below 0: the marker fences none of them. After TransactionsCommand.
            coordinator_epoch=one.coordinator_epoch or 0,
        )
        answer = await connection.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        return {
            TopicPartition(topic.name, row.partition_index): refusal(row.error_code) if row.error_code else None
            for result in answer.markers
            for topic in result.topics
            for row in topic.partitions
        }

    return (await cluster.at_leaders([one.partition], ask))[one.partition]
