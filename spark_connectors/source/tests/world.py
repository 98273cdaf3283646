"""A broker with topics in memory, as far as a source sees it: metadata, offsets, and fetches of real batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.api import Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch, parse_header, stamp
from engine.batches.markers import build_marker
from kafkawire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkawire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkawire.requests.errors import ErrorCode
from spark_connectors.source.bounds import Places
from spark_connectors.source.options import SourceOptions, source_options
from spark_connectors.wire import Address, Cluster, Settings, TopicPartition
from spark_connectors.wire.tests.fakes import FakeBroker, FakeClock, FakeNetwork

ADDRESS = Address("one", 9092)
FIRST_MS = 1_700_000_000_000


@dataclass
class Log:
    """A partition: consecutive batches, perhaps with gaps."""

    start: int = 0
    end: int = 0
    batches: list[bytes] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)  # time and offset of each record
    open_since: int | None = None  # the first offset of an open transaction
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, marker's offset

    def append(self, *values: bytes, producer_id: int = -1, attributes: int = 0) -> int:
        """Append a batch of records that are 10 ms apart. Returns its base offset."""
        records = [
            Record(b"k%d" % (self.end + place), value, FIRST_MS + 10 * (self.end + place))
            for place, value in enumerate(values)
        ]
        producer = (producer_id, 0 if producer_id >= 0 else -1, 0 if producer_id >= 0 else -1)
        return self._put(build_batch(records, attributes=attributes, producer=producer), records)

    def add(self, *records: Record) -> int:
        """Append a batch of these records. Returns its base offset."""
        return self._put(build_batch(records), records)

    def send(self, producer_id: int, *values: bytes) -> int:
        """Append a batch in a transaction. Returns its base offset."""
        base = self.append(*values, producer_id=producer_id, attributes=TRANSACTIONAL_BIT)
        self.open_since = base if self.open_since is None else self.open_since
        return base

    def decide(self, producer_id: int, outcome: Outcome, first: int) -> None:
        """End the transaction that began at `first`; no other one is open."""
        marker = self._put(build_marker(Marker(producer_id, 0, 0, outcome), FIRST_MS), [])
        self.open_since = None
        if outcome is Outcome.ABORT:
            self.aborted.append((producer_id, first, marker))

    def leave_gap(self, count: int) -> None:
        self.end += count

    def delete_before(self, offset: int) -> None:
        """Move the log start. A batch that contains it stays, as in a segment."""
        self.start = offset
        self.batches = [one for one in self.batches if _next_offset(one) > offset]

    @property
    def stable_end(self) -> int:
        return self.end if self.open_since is None else self.open_since

    def offset_at(self, timestamp: int, *, is_committed_only: bool) -> int:
        if timestamp == -2:
            return self.start
        if timestamp == -1:
            return self.stable_end if is_committed_only else self.end
        return next((offset for time, offset in self.times if time >= timestamp and offset >= self.start), -1)

    def read(self, offset: int, max_bytes: int, end: int) -> bytes:
        """Batches up to `max_bytes`: the first one complete, the last one truncated."""
        found = [
            one
            for one in self.batches
            if _next_offset(one) > offset and parse_header(memoryview(one)).base_offset < end
        ]
        first = len(found[0]) if found else 0
        return b"".join(found)[: max(max_bytes, first)]

    def _put(self, batch: bytearray, records: Sequence[Record]) -> int:
        base = self.end
        stamp(memoryview(batch), base, 0)
        self.batches.append(bytes(batch))
        self.times += [(record.timestamp_ms, base + place) for place, record in enumerate(records)]
        self.end = _next_offset(batch)
        return base


def _next_offset(batch: bytes | bytearray) -> int:
    header = parse_header(memoryview(batch))
    return header.base_offset + header.last_offset_delta + 1


@dataclass
class Topic:
    id: bytes
    logs: dict[int, Log]
    is_internal: bool = False


class World:
    """A broker that leads all partitions, and a clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.broker = FakeBroker(
            (MetadataRequest, self._metadata), (ListOffsetsRequest, self._offsets), (FetchRequest, self._fetch)
        )
        self.network.brokers[ADDRESS] = self.broker
        self.topics: dict[str, Topic] = {}
        self.fetch_errors: list[int] = []  # codes of the next fetches
        self.lag: dict[TopicPartition, int] = {}  # differences by which the next ends are too low, once each
        self._ids = 0

    def topic(self, name: str = "t", partitions: int = 1, *, is_internal: bool = False) -> Topic:
        """Create a topic with a new id; it replaces an old one."""
        self._ids += 1
        logs = {number: Log() for number in range(partitions)}
        self.topics[name] = Topic(self._ids.to_bytes(16, "big"), logs, is_internal)
        return self.topics[name]

    def options(self, is_stream: bool = False, /, **options: str) -> SourceOptions:
        raw = {"kafka.bootstrap.servers": str(ADDRESS), **options}
        if not raw.keys() & {"subscribe", "subscribePattern", "assign"}:
            raw["subscribe"] = "t"
        return source_options(raw, is_stream=is_stream)

    def cluster(self, options: SourceOptions | None = None) -> Cluster:
        settings = Settings() if options is None else options.settings
        return Cluster([ADDRESS], settings, connect=self.network, clock=self.clock)

    def places(self, options: SourceOptions) -> Places:
        return Places(self.cluster(options), options, self.clock)

    def _metadata(self, request: Any) -> MetadataResponse:
        names = self.topics if request.topics is None else [one.name for one in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=ADDRESS.host, port=ADDRESS.port)],
            topics=[self._described(name) for name in names],
        )

    def _described(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        rows = [MetadataResponsePartition(partition_index=one, leader_id=1, leader_epoch=0) for one in topic.logs]
        return MetadataResponseTopic(name=name, topic_id=topic.id, is_internal=topic.is_internal, partitions=rows)

    def _offsets(self, request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._offset(topic.name, row, request.isolation_level) for row in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _offset(self, name: str, row: Any, isolation_level: int) -> ListOffsetsPartitionResponse:
        index = row.partition_index
        if name not in self.topics or index not in self.topics[name].logs:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
        log = self.topics[name].logs[index]
        offset = log.offset_at(row.timestamp, is_committed_only=isolation_level == 1)
        if row.timestamp == -1:
            offset -= self.lag.pop(TopicPartition(name, index), 0)
        return ListOffsetsPartitionResponse(partition_index=index, offset=offset)

    def _fetch(self, request: Any) -> FetchResponse:
        (asked,) = request.topics
        (row,) = asked.partitions
        found = self._fetched(asked.topic_id, row, request.isolation_level == 1)
        if found.error_code == 0 and not found.records:
            self.clock.moment_s += request.max_wait_ms / 1000
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=asked.topic_id, partitions=[found])])

    def _fetched(self, topic_id: bytes, row: Any, is_committed_only: bool) -> PartitionData:
        code = self.fetch_errors.pop(0) if self.fetch_errors else 0
        topic = next((one for one in self.topics.values() if one.id == topic_id), None)
        if topic is None or code:
            return PartitionData(partition_index=row.partition, error_code=code or ErrorCode.UNKNOWN_TOPIC_ID)
        log = topic.logs[row.partition]
        if not log.start <= row.fetch_offset <= log.end:
            return PartitionData(partition_index=row.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        end = log.stable_end if is_committed_only else log.end
        records = log.read(row.fetch_offset, row.partition_max_bytes, end)
        aborted = [
            AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first, marker in log.aborted
            if marker >= row.fetch_offset
        ]
        return PartitionData(
            partition_index=row.partition,
            high_watermark=log.end,
            last_stable_offset=log.stable_end,
            log_start_offset=log.start,
            aborted_transactions=aborted if is_committed_only else None,
            records=memoryview(records),
        )
