"""The broker that each request of a transaction goes to."""

from __future__ import annotations

from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkawire.tests.cluster_simulation.plan import OFFSETS, TRANSACTION_STATE
from kafkawire.tests.cluster_simulation.transactions import partition_of
from kafkawire.tests.simulation.plan import Target


def test_records_are_written_and_read_where_their_partition_is_led() -> None:
    produced = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1)])
    assert partition_of(ProduceRequest(topic_data=[produced])) == Target("t", 1)
    fetched = FetchTopic(topic="t", partitions=[FetchPartition(partition=2)])
    assert partition_of(FetchRequest(topics=[fetched])) == Target("t", 2)


def test_coordinator_requests_go_to_the_coordinator_and_find_coordinator_to_any_broker() -> None:
    assert partition_of(TxnOffsetCommitRequest()) == OFFSETS
    assert partition_of(EndTxnRequest()) == TRANSACTION_STATE
    assert partition_of(FindCoordinatorRequest()) is None
