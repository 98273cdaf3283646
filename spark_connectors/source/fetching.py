"""The Fetch loop of a task: reads all offsets of its range, whatever changes in the cluster.

Requests have the topic id, so a recreated topic is never mistaken for the planned one. Missing offsets are judged as in
Spark's KafkaDataConsumer: gaps between records are normal, and an offset out of the log's range is a loss.
`failOnDataLoss` decides whether a loss ends the query. Nothing else is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from spark_connectors.offsets import Offsets
from spark_connectors.records.batches import Batch, batches_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.source.bounds import Places
from spark_connectors.source.errors import Unread, report_loss
from spark_connectors.source.options import Edge, SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import BrokerError, Cluster, ErrorCode, GaveUp, PartitionResult, TopicPartition
from spark_connectors.wire.clock import Clock, SystemClock
from spark_connectors.wire.codes import RETRIABLE
from spark_connectors.wire.messages.fetch import (
    FETCH,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

FIRST_GUESS_BYTES: Final = 1024  # of a record; later the received records show it
MARGIN: Final = 1.25
SIZE_MIN_BYTES: Final = 64 << 10
PAUSE_FIRST_S: Final = 0.02

# Errors for an unknown topic id, and of the metadata of a missing topic.
_TOPIC_UNKNOWN: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


class Piece(NamedTuple):
    """Batches with their bytes, and their aborted transactions: producer, first offset, and the last offset if known.

    Offsets before `start` are not wanted, or do not exist any more: a log may begin within a batch.
    """

    start: int
    records: memoryview
    batches: list[Batch]
    aborted: Sequence[tuple[int, int] | tuple[int, int, int | None]]


class RangeFetch:
    """Fetch of one range. `pieces` can be iterated once."""

    def __init__(
        self, cluster: Cluster, options: SourceOptions, wanted: OffsetRange, clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._clock = clock or SystemClock()
        self._position = wanted.start
        self._size_bytes = self._size_for(FIRST_GUESS_BYTES)
        self._deadline_s = 0.0
        self._pause_s = PAUSE_FIRST_S
        self._answered_end: int | None = None  # end of the readable log, from an answer after the last records
        self._times_gone = 0

    def pieces(self) -> Iterator[Piece]:
        """All batches of the range, in order. The first one may begin before it, the last one may end behind it.

        Raises WireError, MalformedBatch, DataLoss, Unread, TopicRecreated.
        """
        self._move_to(self._position)
        while self._position < self._wanted.end:
            if self._clock.now_s() >= self._deadline_s:
                self._out_of_time()
                continue
            row = self._fetched()
            if row is None:
                continue
            records = memoryview(row.records or b"")
            batches = self._batches(records)
            if row.log_start_offset > self._position and (not batches or batches[0].base_offset > self._position):
                self._out_of_range()
            elif batches:
                start = self._position
                self._take(records, batches)
                aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
                yield Piece(start, records, batches, aborted)
            else:
                self._nothing(row, is_cut=len(records) > 0)

    def _fetched(self) -> FetchedPartition | None:
        """Answer of the leader; None after an error that was handled, or if the broker only throttles."""
        place = self._wanted.place
        try:
            found = self._cluster.at_leaders(
                FETCH,
                [place],
                self._request,
                self._results,
                deadline_s=self._deadline_s,
                retry_on=RETRIABLE - _TOPIC_UNKNOWN,
            )
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._out_of_range()
            elif error.code in _TOPIC_UNKNOWN:
                self._topic_unknown()
            else:
                raise BrokerError(
                    error.code, f"{error.subject} from offset {self._position} on", error.message
                ) from None
            return None
        except GaveUp as error:  # perhaps within a pause between two answers without records
            self._out_of_time(error)
            return None
        return found[place]

    def _request(self, theirs: dict[TopicPartition, int]) -> FetchRequest:
        (epoch,) = theirs.values()
        sizes = self._options.fetch
        row = FetchPartition(
            partition=self._wanted.place.partition,
            current_leader_epoch=epoch,
            fetch_offset=self._position,
            partition_max_bytes=self._size_bytes,
        )
        return FetchRequest(
            max_wait_ms=sizes.max_wait_ms,
            min_bytes=sizes.min_bytes,
            max_bytes=max(sizes.max_bytes, self._size_bytes),
            isolation_level=int(self._options.is_committed_only),
            topics=(FetchTopic(topic_id=self._wanted.topic_id, partitions=(row,)),),
        )

    def _results(self, reply: FetchResponse) -> Iterable[PartitionResult[FetchedPartition | None]]:
        """Results of a Fetch. To throttle, a broker answers without partitions (FetchContext.getThrottledResponse)."""
        rows = [row for topic in reply.responses for row in topic.partitions]
        if reply.error_code or (not rows and reply.throttle_time_ms > 0):
            return [PartitionResult(self._wanted.place, reply.error_code, None)]
        mine = [row for row in rows if row.partition_index == self._wanted.place.partition]
        return [PartitionResult(self._wanted.place, row.error_code, row) for row in mine]

    def _batches(self, records: memoryview) -> list[Batch]:
        try:
            return batches_of(records)
        except MalformedBatch as error:
            raise MalformedBatch(f"{self._wanted.place} from offset {self._position} on: {error}") from error

    def _take(self, records: memoryview, batches: list[Batch]) -> None:
        end = batches[-1].next_offset
        if end <= self._position:
            raise MalformedBatch(f"{self._wanted.place}: asked for offset {self._position}, given up to {end}")
        first = max(batches[0].base_offset, self._position)
        self._move_to(end)
        self._size_bytes = self._size_for(len(records) / (end - first))

    def _size_for(self, offset_bytes: float) -> int:
        """Bytes to ask for: the rest of the range, at most the value of the option, but enough for some batches."""
        needed = int((self._wanted.end - self._position) * offset_bytes * MARGIN)
        return min(max(needed, SIZE_MIN_BYTES), self._options.fetch.partition_max_bytes)

    def _move_to(self, position: int) -> None:
        self._position = position
        self._deadline_s = self._clock.now_s() + self._options.poll_timeout_s
        self._pause_s = PAUSE_FIRST_S
        self._answered_end = None

    def _nothing(self, row: FetchedPartition, *, is_cut: bool) -> None:
        """Handle an answer without a complete batch: the batch is larger than the limit, or there are no readable
        records yet.
        """
        settings = self._cluster.settings
        if is_cut and self._size_bytes < settings.reply_max_bytes // 2:
            self._size_bytes = max(2 * self._size_bytes, SIZE_MIN_BYTES)
            return
        if is_cut:
            raise MalformedBatch(f"{self._wanted.place}: no whole batch in {self._size_bytes} bytes")
        self._answered_end = row.last_stable_offset if self._options.is_committed_only else row.high_watermark
        self._pause()

    def _out_of_time(self, error: GaveUp | None = None) -> None:
        """Handle a timeout: a loss if the broker has no further records, otherwise an error."""
        if self._answered_end is None and error is not None:
            raise GaveUp(f"offset {self._position} of {self._wanted.place}: {error}") from error
        if self._answered_end is None or self._position < self._answered_end:
            waited_s = self._options.poll_timeout_s
            raise Unread(f"cannot fetch offset {self._position} of {self._wanted.place} in {waited_s:g} s")
        self._lose(f"there is nothing from offset {self._position} on")

    def _pause(self) -> None:
        self._clock.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._cluster.settings.retry_max_s)

    def _out_of_range(self) -> None:
        place, wanted = self._wanted.place, self._wanted
        places = Places(self._cluster, self._options, self._clock)
        earliest = places.list_offsets({place: Edge.EARLIEST})[place]
        latest = places.list_offsets({place: Edge.LATEST})[place]
        if earliest <= self._position < latest:  # the offset is in range again
            self._pause()
        elif self._position < earliest and wanted.is_earliest:
            self._move_to(min(earliest, wanted.end))
        else:
            is_aged_out = self._position < earliest
            self._lose(f"there are offsets {earliest} to {latest}", earliest if is_aged_out else wanted.end)

    def _lose(self, why: str, position: int | None = None) -> None:
        """Report a loss, and continue at `position`, or at the end of the range."""
        wanted = self._wanted
        report_loss(
            f"cannot fetch offsets from {self._position} on, of {wanted}: {why}", fails=self._options.fails_on_data_loss
        )
        self._move_to(wanted.end if position is None else min(position, wanted.end))

    def _topic_unknown(self) -> None:
        topic = self._wanted.place.topic
        found = self._cluster.topics([topic], self._deadline_s).get(topic)
        if found is None:
            self._times_gone += 1
            if self._times_gone >= self._options.lookup_attempts:
                self._lose(f"topic {topic} is gone")
                return
            self._clock.sleep(max(self._options.lookup_pause_s, PAUSE_FIRST_S))
            return
        Offsets({}, {topic: self._wanted.topic_id}).check_ids({topic: found.topic_id})
        self._pause()
