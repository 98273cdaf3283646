"""A FakeAdmin whose topics have records: it stores each batch once, and returns it to consumers."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import trio

from engine.batches.batch import parse_header
from kafkawire.client.connection import Address
from kafkawire.client.tests.fake_admin import FakeAdmin
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.messages import fetch, produce
from kafkawire.messages.init_producer_id import InitProducerIdResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.wire.message import Message


class FakeRecords(FakeAdmin):
    """`batches` has the stored batches, by topic and partition. The next replies of the APIs in `lose` get lost.

    Partitions in `short_of_replicas` store nothing; none stores a batch of more than `batch_max_bytes`.
    """

    def __init__(self, broker_count: int = 1) -> None:
        super().__init__(broker_count)
        self.batches: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.lose: list[int] = []
        self.batch_max_bytes = 2**31
        self.short_of_replicas: set[tuple[str, int]] = set()
        self._producers = 0
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._answers |= {0: self._produce, 1: self._fetch, 22: self._init_producer_id}

    def answer(self, address: Address, frame: bytes) -> bytes:
        reply = super().answer(address, frame)
        api_key = self.requests[-1][1].API_KEY
        if api_key in self.lose:
            self.lose.remove(api_key)
            raise trio.BrokenResourceError
        return reply

    def store(self, topic: str, partition: int, batch: bytes | bytearray | memoryview) -> int:
        """Store a batch. Return the offset of its first record."""
        log = self.topics[topic][partition]
        base_offset = log.end
        header = parse_header(batch)
        self.batches[topic, partition].append(struct.pack(">q", base_offset) + bytes(batch)[8:])
        log.end += header.last_offset_delta + 1
        log.times[base_offset] = header.base_timestamp_ms
        return base_offset

    def _init_producer_id(self, address: Address, request: Any, version: int) -> Message:
        assert request.transactional_id is None
        self._producers += 1
        return InitProducerIdResponse(error_code=self._refusal(22), producer_id=self._producers, producer_epoch=0)

    def _produce(self, address: Address, request: Any, version: int) -> Message:
        assert (request.acks, version) == (-1, 12)
        return produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[self._append(address, topic.name, one) for one in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )

    def _append(self, address: Address, topic: str, sent: Any) -> produce.PartitionProduceResponse:
        log = self.topics[topic][sent.index]
        code = self._refusal(0) or self._misplaced(address, log)
        if (topic, sent.index) in self.short_of_replicas:
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        elif len(sent.records) > self.batch_max_bytes:
            code = ErrorCode.MESSAGE_TOO_LARGE
        row = produce.PartitionProduceResponse(index=sent.index, error_code=code)
        if row.error_code:
            return row
        header = parse_header(sent.records)
        sender = (header.producer_id, topic, sent.index)
        expected = self._sequences.get(sender, 0)
        if header.base_sequence == expected:
            self._sequences[sender] = expected + header.record_count
            row.base_offset = self.store(topic, sent.index, sent.records)
        elif header.base_sequence + header.record_count == expected:  # a duplicate
            row.base_offset = log.end - header.record_count
        else:
            row.error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return row

    def _misplaced(self, address: Address, log: FakeLog) -> int:
        return 0 if self.addresses[log.leader] == address else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _fetch(self, address: Address, request: Any, version: int) -> Message:
        assert version == 12
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=topic.topic, partitions=[self._read(address, topic.topic, one) for one in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _read(self, address: Address, topic: str, asked: Any) -> fetch.PartitionData:
        log = self.topics[topic][asked.partition]
        code = self._refusal(1) or self._misplaced(address, log)
        row = fetch.PartitionData(partition_index=asked.partition, error_code=code, aborted_transactions=[])
        if not log.start <= asked.fetch_offset <= log.end:
            row.error_code = row.error_code or ErrorCode.OFFSET_OUT_OF_RANGE
        if not row.error_code:
            kept = [one for one in self.batches[topic, asked.partition] if _end(one) > asked.fetch_offset]
            data = b"".join(kept)
            row.records = memoryview(data[: max(asked.partition_max_bytes, len(kept[0]) if kept else 0)])
        return row


def _end(batch: bytes) -> int:
    return parse_header(batch).next_offset
