"""Requests of administrators about transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kafkawire.client.cluster import LEADER_ATTEMPTS, Cluster
from kafkawire.client.errors import ClientError, NotSupported, Refusal, refusal
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_transactions import NOW_MS, FakeProducer, FakeTransaction, FakeTransactions
from kafkawire.client.transactions import (
    OpenTransaction,
    Transaction,
    abort_transaction,
    describe_transactions,
    list_transactions,
    open_transactions,
)
from kafkawire.messages.describe_producers import DescribeProducersRequest
from kafkawire.messages.describe_transactions import DescribeTransactionsRequest
from kafkawire.messages.list_transactions import ListTransactionsRequest
from kafkawire.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkawire.requests.errors import ErrorCode

ORDERS, EVENTS = TopicPartition("orders", 0), TopicPartition("events", 1)


def cluster_with(**transactions: FakeTransaction) -> FakeTransactions:
    """A cluster of two brokers; the second one leads partition 1 of `events`."""
    fake = FakeTransactions(broker_count=2)
    fake.transactions.update(transactions)
    fake.topics = {"orders": [FakeLog()], "events": [FakeLog(), FakeLog(leader=2)]}
    return fake


def reachable(fake: FakeTransactions) -> Cluster:
    return Cluster(fake.bootstrap, fake.connect)


async def test_transactions_of_all_brokers_by_transactional_id() -> None:
    fake = cluster_with(
        b=FakeTransaction("CompleteCommit", 7, started_ms=NOW_MS - 5), a=FakeTransaction(producer_id=9, coordinator=2)
    )
    async with reachable(fake) as cluster:
        assert await list_transactions(cluster) == [("a", "Ongoing", 9), ("b", "CompleteCommit", 7)]
        assert [one.transactional_id for one in await list_transactions(cluster, ["CompleteCommit"])] == ["b"]
        assert [one.transactional_id for one in await list_transactions(cluster, longer_than_ms=5)] == ["a"]
        assert [one.transactional_id for one in await list_transactions(cluster, pattern="[b-z]")] == ["b"]
        fake.refuse(ListTransactionsRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert len(await list_transactions(cluster)) == 2
        with pytest.raises(ClientError, match="kafka-1:9092 does not list its transactions: the pattern is not valid"):
            await list_transactions(cluster, pattern="(")


@pytest.mark.parametrize(("filters", "version"), [({"longer_than_ms": 0}, 0), ({"pattern": "a.*"}, 1)])
async def test_an_old_broker_cannot_filter(filters: dict[str, Any], version: int) -> None:
    fake = cluster_with()
    fake.versions[ListTransactionsRequest.API_KEY] = (0, version)
    async with reachable(fake) as cluster:
        assert await list_transactions(cluster, ["Ongoing"]) == []
        with pytest.raises(NotSupported):
            await list_transactions(cluster, **filters)


async def test_transactions_are_described_by_their_coordinators() -> None:
    fake = cluster_with(
        new=FakeTransaction("Empty", started_ms=-1),
        old=FakeTransaction(partitions={"orders": [0], "events": [1]}, coordinator=2),
    )
    fake.refuse(DescribeTransactionsRequest, ErrorCode.NOT_COORDINATOR)
    first, second = fake.bootstrap
    async with reachable(fake) as cluster:
        assert await describe_transactions(cluster, ["new", "old", "other"]) == {
            "new": Transaction("new", "Empty", 1000, 2, 60_000, None, first, []),
            "old": Transaction("old", "Ongoing", 1000, 2, 60_000, NOW_MS - 60_000, second, [EVENTS, ORDERS]),
            "other": refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        }


async def test_open_transactions_of_a_partition_are_listed_by_start_offset() -> None:
    fake = cluster_with()
    fake.producers[EVENTS] = [FakeProducer(7, 50, coordinator_epoch=3), FakeProducer(8), FakeProducer(9, 40)]
    fake.refuse(DescribeProducersRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with reachable(fake) as cluster:
        assert await open_transactions(cluster, EVENTS) == [
            OpenTransaction(EVENTS, 9, 2, None, 40, NOW_MS),
            OpenTransaction(EVENTS, 7, 2, 3, 50, NOW_MS),
        ]
        assert await open_transactions(cluster, ORDERS) == []
        gone = await open_transactions(cluster, TopicPartition("orders", 9))
        assert gone == refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(("known", "sent"), [(None, 0), (0, 0), (5, 5)])
async def test_a_marker_that_shuts_out_no_coordinator(known: int | None, sent: int) -> None:
    fake = cluster_with()
    fake.producers[EVENTS] = [FakeProducer(7, 50)]
    fake.refuse(WriteTxnMarkersRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with reachable(fake) as cluster:
        assert await abort_transaction(cluster, OpenTransaction(EVENTS, 7, 2, known, 50, NOW_MS)) is None
        assert await open_transactions(cluster, EVENTS) == []
    (marker,) = fake.markers
    (topic,) = marker.topics
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, sent)
    assert (marker.transaction_result, topic.name, topic.partition_indexes) == (False, "events", [1])


async def test_an_abort_that_is_refused() -> None:
    fake = cluster_with()
    one = OpenTransaction(ORDERS, 7, 2, None, 50, NOW_MS)
    fake.refuse(WriteTxnMarkersRequest, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with reachable(fake) as cluster:
        assert str(await abort_transaction(cluster, one)) == "not authorized for the cluster"
        fake.refuse(WriteTxnMarkersRequest, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * LEADER_ATTEMPTS)
        refused = await abort_transaction(cluster, one)
    assert isinstance(refused, Refusal)
    assert refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fake.markers == []
