"""Idempotent producer with acks=all: a batch that is sent again is not stored twice.

One batch for each partition is in flight at a time. The producer retries transient errors and lost connections until
the caller's deadline, and halves batches that are too large. It does not batch over time: each `send` is a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import trio

from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    RECORD_OVERHEAD_MAX_BYTES,
    Codec,
    Record,
    build_batch,
    parse_header,
    seal_batch,
)
from engine.batches.codecs import compress
from kafkawire.client.cluster import LEADER_COMES, RETRY_FIRST_S, Cluster
from kafkawire.client.connection import Connection
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.partitions import TopicPartition, by_topic
from kafkawire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafkawire.requests.errors import ErrorCode

BATCH_MAX_BYTES: Final = 512 * 1024  # half of the default max.message.bytes; a larger record is sent alone
BROKER_TIMEOUT_MS: Final = 30_000
NO_PRODUCER: Final = (-1, -1, -1)

_ACKS_ALL: Final = -1
_BY_NAME_AT_MOST: Final = 12  # from version 13 on, Produce names topics only by ids
_SEQUENCES: Final = 2**31
_HEADER_OVERHEAD_MAX_BYTES: Final = 10
_PASSES: Final = LEADER_COMES | {
    ErrorCode.KAFKA_STORAGE_ERROR,  # another replica may become leader
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic exists: brokers learn of a new topic one after the other
}
_TOO_LARGE: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)  # for the topic, or for the segment

OnStored = Callable[[TopicPartition, int, Sequence[Record]], None]  # with the offset of the first record


class Producer:
    """Producer to topics of a cluster."""

    def __init__(self, cluster: Cluster, codec: Codec = Codec.NONE) -> None:
        self._cluster = cluster
        self._codec = codec
        self._identity: tuple[int, int] | None = None  # id and epoch
        self._sequences: dict[TopicPartition, int] = {}

    async def send(
        self, records: Mapping[TopicPartition, Sequence[Record]], on_stored: OnStored = lambda one, offset, batch: None
    ) -> dict[TopicPartition, int | Refusal]:
        """Send a batch to each of the partitions, in parts if it is too large. Return the offsets of their first
        records.

        `on_stored` is called once for each acknowledged part, at once. After a refused part, later ones of its
        partition are not sent. Raises ClientError.
        """
        if self._identity is None:
            self._identity = await self._cluster.retrying(self._begin)
        sending = _Sending(records, self._codec, self._identity, self._sequences, on_stored)

        async def send_the_rest() -> dict[TopicPartition, int | Refusal]:
            return await self._cluster.at_leaders(sending.rest, sending.ask, transient=_PASSES, attempts_max=None)

        outcomes = await self._cluster.retrying(send_the_rest)
        return {**sending.first_offsets, **outcomes}

    async def _begin(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=BROKER_TIMEOUT_MS)
        while True:
            answer = await (await self._cluster.any_broker()).call(request, InitProducerIdResponse)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            refused = refusal(answer.error_code)
            if refused.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise ClientError(f"no producer id: {refused}")
            self._cluster.waiting_for = "a producer id"
            await trio.sleep(RETRY_FIRST_S)


class _Sending:
    """Unstored records of one `send`: parts of each partition, in order; the first part is in flight.

    `first_offsets` are those of stored records. `sequences` outlive the send. A batch that is too large is halved, like
    in Java's ProducerBatch.split; the broker that refused it still expects the same sequence.
    """

    def __init__(
        self,
        records: Mapping[TopicPartition, Sequence[Record]],
        codec: Codec,
        identity: tuple[int, int],
        sequences: dict[TopicPartition, int],
        on_stored: OnStored,
    ) -> None:
        self.first_offsets: dict[TopicPartition, int] = {}
        self._parts = {one: [some] for one, some in records.items()}
        self._codec = codec
        self._identity = identity
        self._sequences = sequences
        self._on_stored = on_stored
        self._batches = {one: self._encoded(one) for one in records}

    @property
    def rest(self) -> list[TopicPartition]:
        """Partitions whose records are not all stored."""
        return list(self._parts)

    async def ask(
        self, connection: Connection, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int | Refusal]:
        """Send the parts of these partitions to their leader, one after the other."""
        outcomes: dict[TopicPartition, int | Refusal] = {}
        pending = partitions
        while pending:
            answers = await _produce(connection, {one: self._batches[one] for one in pending})
            found = {one: self._note(one, answers[one]) for one in pending if one in answers}
            outcomes |= {one: outcome for one, outcome in found.items() if outcome is not None}
            pending = [one for one, outcome in found.items() if outcome is None]
        return outcomes

    def _note(self, one: TopicPartition, outcome: int | Refusal) -> int | Refusal | None:
        """Note the result of a part. Return the result of the partition, or None if another part is to be sent."""
        part, *later = self._parts[one]
        if not isinstance(outcome, Refusal):
            self.first_offsets.setdefault(one, outcome)
            self._sequences[one] = (self._sequences.get(one, 0) + len(part)) % _SEQUENCES
            self._on_stored(one, outcome, part)
        elif outcome.code in _TOO_LARGE and len(part) > 1:
            middle = len(part) // 2
            later = [part[:middle], part[middle:], *later]
        else:
            return outcome
        if not later:
            del self._parts[one]
            return self.first_offsets[one]
        self._parts[one] = later
        self._batches[one] = self._encoded(one)
        return None

    def _encoded(self, one: TopicPartition) -> memoryview:
        producer = (*self._identity, self._sequences.get(one, 0))
        return memoryview(encode_batch(self._parts[one][0], self._codec, producer))


def encode_batch(records: Sequence[Record], codec: Codec, producer: tuple[int, int, int] = NO_PRODUCER) -> bytearray:
    """Encode a batch. `producer` is id, epoch and the sequence of the first record."""
    plain = build_batch(records, attributes=codec, producer=producer)
    if codec is Codec.NONE:
        return plain
    header = parse_header(plain)
    return seal_batch(
        compress(codec, bytes(plain[HEADER_SIZE_BYTES:])),
        record_count=header.record_count,
        base_offset=0,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes,
        timestamps_ms=(header.base_timestamp_ms, header.max_timestamp_ms),
        producer=producer,
    )


async def _produce(
    connection: Connection, batches: Mapping[TopicPartition, memoryview]
) -> dict[TopicPartition, int | Refusal]:
    topics = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=one.partition, records=batches[one]) for one in some],
        )
        for topic, some in by_topic(batches)
    ]
    request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=BROKER_TIMEOUT_MS, topic_data=topics)
    answer = await connection.call(request, ProduceResponse, at_most=_BY_NAME_AT_MOST)
    return {
        TopicPartition(topic.name, row.index): refusal(row.error_code, row.error_message)
        if row.error_code
        else row.base_offset
        for topic in answer.responses
        for row in topic.partition_responses
    }


def in_rounds(records: Iterable[tuple[TopicPartition, Record]]) -> Iterator[dict[TopicPartition, list[Record]]]:
    """Divide records into sends, so that no batch is larger than brokers accept."""
    batches: dict[TopicPartition, list[Record]] = {}
    sizes: dict[TopicPartition, int] = {}
    for partition, record in records:
        size_bytes = record_size_max_bytes(record)
        if partition in batches and sizes[partition] + size_bytes > BATCH_MAX_BYTES:
            yield batches
            batches, sizes = {}, {}
        batches.setdefault(partition, []).append(record)
        sizes[partition] = sizes.get(partition, 0) + size_bytes
    if batches:
        yield batches


def record_size_max_bytes(record: Record) -> int:
    """Upper bound of the size of a record in an uncompressed batch."""
    size_bytes = RECORD_OVERHEAD_MAX_BYTES + len(record.key or b"") + len(record.value or b"")
    for header in record.headers:
        size_bytes += _HEADER_OVERHEAD_MAX_BYTES + len(header.key) + len(header.value or b"")
    return size_bytes
