"""Consumer of partitions from given offsets on, by default with read_committed isolation.

It reads without a group and keeps its positions. Bytes that do not match their CRC are refused, and so are records that
exceed a bound when they are decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from engine.api import Isolation, Outcome
from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
    RecordHeader,
    has_right_crc,
    parse_header,
    walk_records,
)
from engine.batches.codecs import decompress
from engine.batches.markers import parse_marker
from engine.errors import CorruptMessage
from kafkawire.client.cluster import LEADER_COMES, Cluster
from kafkawire.client.connection import Connection
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.offsets import EARLIEST, LATEST, offsets_at
from kafkawire.client.partitions import TopicPartition, by_topic
from kafkawire.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkawire.requests.errors import ErrorCode

WAIT_MAX_MS: Final = 500
REPLY_MAX_BYTES: Final = 8 * 1024 * 1024
PARTITION_MAX_BYTES: Final = 1024 * 1024  # a larger batch comes alone

_BY_NAME_AT_MOST: Final = 12  # from version 13 on, Fetch names topics only by ids
_MAGIC_POSITION: Final = 16
_PASSES: Final = LEADER_COMES | {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic exists: brokers learn of a new topic one after the other
    ErrorCode.FENCED_LEADER_EPOCH,
}


class ConsumedRecord(NamedTuple):
    """A record. `headers` are in their original order."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A fetched batch. Only its offsets from `first_offset` on were requested. If it was aborted, it has no records."""

    partition: TopicPartition
    first_offset: int
    header: BatchHeader
    data: memoryview
    is_aborted: bool = False

    def records(self) -> Iterator[ConsumedRecord]:
        """Records of the batch. Raises ClientError."""
        header = self.header
        if header.is_control or self.is_aborted:
            return
        try:
            if header.codec_id > Codec.ZSTD:
                raise CorruptMessage(f"unknown compression codec {header.codec_id}")
            for record in walk_records(header, decompress(header.codec_id, self.data[HEADER_SIZE_BYTES:])):
                offset = header.base_offset + record.offset_delta
                if offset >= self.first_offset:
                    yield ConsumedRecord(
                        self.partition,
                        offset,
                        record.timestamp_ms,
                        header.is_log_append_time,
                        record.key,
                        record.value,
                        record.headers,
                    )
        except CorruptMessage as error:
            raise ClientError(f"{self.partition}: the batch at offset {header.base_offset}: {error}") from error


class _Fetched(NamedTuple):
    """Fetched bytes of a partition; `aborted` are transactions that may be in them."""

    records: memoryview
    aborted: Sequence[AbortedTransaction]


class Consumer:
    """`positions` are the next offsets to read. `remark` gets a line if the log has lost an offset."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        remark: Callable[[str], None],
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        self.positions = dict(positions)
        self._cluster = cluster
        self._remark = remark
        self._isolation = isolation
        self._wait_ms = 0

    def drop_finished(self, ends: Mapping[TopicPartition, int]) -> None:
        """Stop reading partitions that are read up to these offsets."""
        for one in [one for one, position in self.positions.items() if position >= ends[one]]:
            del self.positions[one]

    async def poll(self) -> list[Batch]:
        """The next batches of any partition; an empty list if none comes for a while. Raises ClientError."""
        outcomes = await self._cluster.retrying(
            partial(self._cluster.at_leaders, self.positions, self._fetch, transient=_PASSES, attempts_max=None)
        )
        batches: list[Batch] = []
        for one, outcome in outcomes.items():
            if not isinstance(outcome, Refusal):
                batches += _without_aborted(_batches(one, self.positions[one], outcome.records), outcome.aborted)
            elif outcome.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._return_into_log(one)
            else:
                raise ClientError(f"{one}: {outcome}")
        for batch in batches:
            self.positions[batch.partition] = batch.header.next_offset
        # Brokers are asked one after the other: a broker without records must not delay the others.
        self._wait_ms = 0 if batches else WAIT_MAX_MS
        return batches

    async def _fetch(
        self, connection: Connection, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, _Fetched | Refusal]:
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=one.partition,
                        fetch_offset=self.positions[one],
                        partition_max_bytes=PARTITION_MAX_BYTES,
                    )
                    for one in topic_partitions
                ],
            )
            for topic, topic_partitions in by_topic(partitions)
        ]
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=REPLY_MAX_BYTES,
            isolation_level=self._isolation,
            topics=topics,
        )
        answer = await connection.call(request, FetchResponse, at_most=_BY_NAME_AT_MOST)
        if answer.error_code:
            raise ClientError(f"{connection.address}: {refusal(answer.error_code)}")
        return {
            TopicPartition(topic.topic, row.partition_index): refusal(row.error_code)
            if row.error_code
            else _Fetched(memoryview(row.records or b""), row.aborted_transactions or ())  # type: ignore[arg-type]
            for topic in answer.responses
            for row in topic.partitions
        }

    async def _return_into_log(self, one: TopicPartition) -> None:
        """Move the position back into the log, after it has lost its start or, by an unclean election, its end."""
        position = self.positions[one]
        starts = await offsets_at(self._cluster, [one], EARLIEST)
        ends = await offsets_at(self._cluster, [one], LATEST, self._isolation)
        start, end = starts[one], ends[one]
        if isinstance(start, Refusal) or isinstance(end, Refusal):
            raise ClientError(f"{one}: {start if isinstance(start, Refusal) else end}")
        self.positions[one] = min(max(position, start), end)
        if self.positions[one] != position:
            self._remark(f"{one} has no offset {position} any more: {self.positions[one]} is taken")


def _without_aborted(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> Iterator[Batch]:
    """Mark a transaction's batches as aborted, from its first offset to its marker (Kafka's CompletedFetch).

    Raises ClientError.
    """
    to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    aborted_ids: set[int] = set()
    for batch in batches:
        header = batch.header
        while to_come and to_come[-1].first_offset < header.next_offset:
            aborted_ids.add(to_come.pop().producer_id)
        if header.is_control:
            try:
                marker = parse_marker(header, batch.data)
            except CorruptMessage as error:
                raise ClientError(f"{batch.partition}: the batch at offset {header.base_offset}: {error}") from error
            if marker is not None and marker.outcome is Outcome.ABORT:
                aborted_ids.discard(header.producer_id)
        is_aborted = header.is_transactional and header.producer_id in aborted_ids
        yield replace(batch, is_aborted=True) if is_aborted else batch


def _batches(one: TopicPartition, position: int, data: memoryview) -> Iterator[Batch]:
    """Batches of a reply, whose bound may have cut the last one off. Raises ClientError."""
    start = 0
    while len(data) - start >= HEADER_SIZE_BYTES:
        if data[start + _MAGIC_POSITION] != MAGIC:
            raise ClientError(f"{one}: records at offset {position} are of a format before Kafka 0.11")
        header = parse_header(data, start)
        end = start + header.size_bytes
        if header.size_bytes < HEADER_SIZE_BYTES or not has_right_crc(data[start:end], header):
            if end > len(data) and start:
                return
            raise ClientError(f"{one}: the batch at offset {header.base_offset} does not match its CRC")
        if header.next_offset > position:
            yield Batch(one, position, header, data[start:end])
        start = end
