"""A broker without a network, with the transactions of the model: requests in, replies out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafkawire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kafkawire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkawire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from spark_connectors.records.batches import batches_of
from spark_connectors.sink.relay import (
    AddPartitions,
    AddRecord,
    Append,
    Begin,
    Commit,
    Producer,
    ReadRecord,
    Step,
    WriteRecord,
)
from spark_connectors.sink.tests.model import Model
from spark_connectors.wire import Address, BrokerError, Cluster, ErrorCode, Settings, TopicPartition
from spark_connectors.wire.tests.fakes import FakeBroker, FakeClock, FakeNetwork

ADDRESS = Address("one", 9092)
PARTITIONS = 3


class World:
    """A broker with one topic, `t`. It leads and coordinates everything."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.model = Model()
        self.produce_code: int = ErrorCode.NONE
        self.produce_message: str | None = None
        self.broker = FakeBroker(
            (MetadataRequest, self._metadata),
            (FindCoordinatorRequest, self._find),
            (InitProducerIdRequest, self._begin),
            (OffsetFetchRequest, self._read_record),
            (AddPartitionsToTxnRequest, self._add_partitions),
            (ProduceRequest, self._produce),
            (AddOffsetsToTxnRequest, self._add_record),
            (TxnOffsetCommitRequest, self._write_record),
            (EndTxnRequest, self._end),
        )
        self.network.brokers[ADDRESS] = self.broker

    def cluster(self) -> Cluster:
        return Cluster([ADDRESS], Settings(), connect=self.network, clock=self.clock)

    def values(self) -> list[bytes | None]:
        """Values of all partitions, one after the other."""
        return [value for number in range(PARTITIONS) for value in self.model.values(TopicPartition("t", number))]

    def _code(self, name: str, *steps: Step) -> int:
        try:
            for step in steps:
                self.model.perform(name, step)
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    def _metadata(self, request: Any) -> MetadataResponse:
        rows = [MetadataResponsePartition(partition_index=index, leader_id=1) for index in range(PARTITIONS)]
        topics = [
            MetadataResponseTopic(name=one.name, partitions=rows)
            if one.name == "t"
            else MetadataResponseTopic(name=one.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for one in request.topics
        ]
        broker = MetadataResponseBroker(node_id=1, host=ADDRESS.host, port=ADDRESS.port)
        return MetadataResponse(brokers=[broker], topics=topics)

    def _find(self, request: Any) -> FindCoordinatorResponse:
        rows = [Coordinator(key=key, host=ADDRESS.host, port=ADDRESS.port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)

    def _begin(self, request: Any) -> InitProducerIdResponse:
        made: Producer = self.model.perform(request.transactional_id, Begin())
        return InitProducerIdResponse(producer_id=made.id, producer_epoch=made.epoch)

    def _read_record(self, request: Any) -> OffsetFetchResponse:
        (topic,) = request.topics
        assert request.require_stable
        found = self.model.perform(request.group_id, ReadRecord())
        row = OffsetFetchResponsePartition(partition_index=0, committed_offset=-1 if found is None else found)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=topic.name, partitions=[row])])

    def _add_partitions(self, request: Any) -> AddPartitionsToTxnResponse:
        topics = request.v3_and_below_topics
        places = tuple(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
        by = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        code = self._code(request.v3_and_below_transactional_id, AddPartitions(by, places))
        answers = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=answers)

    def _produce(self, request: Any) -> ProduceResponse:
        answers = []
        for topic in request.topic_data:
            rows = []
            for one in topic.partition_data:
                batch = bytearray(one.records)
                (header,) = batches_of(batch)
                by = Producer(header.producer_id, header.producer_epoch)
                step = Append(by, {TopicPartition(topic.name, one.index): batch})
                code = self.produce_code or self._code(request.transactional_id, step)
                said = self.produce_message
                rows.append(PartitionProduceResponse(index=one.index, error_code=code, error_message=said))
            answers.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=answers)

    def _add_record(self, request: Any) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=self._step(request, AddRecord))

    def _write_record(self, request: Any) -> TxnOffsetCommitResponse:
        (topic,) = request.topics
        (row,) = topic.partitions
        code = self._step(request, lambda by: WriteRecord(by, row.committed_offset))
        answer = TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name=topic.name, partitions=[answer])])

    def _end(self, request: Any) -> EndTxnResponse:
        assert request.committed
        return EndTxnResponse(error_code=self._step(request, Commit))

    def _step(self, request: Any, step: Callable[[Producer], Step]) -> int:
        return self._code(request.transactional_id, step(Producer(request.producer_id, request.producer_epoch)))
