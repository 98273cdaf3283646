"""The follower role: appends the batches of the leader unchanged, at the leader's offsets (KIP-101).

The logs of replicas have the same bytes. Segments begin where they begin on the leader, so that they are equal, too,
except for a segment whose first records were truncated. A batch that does not continue the log is refused: the logs
diverge before it, and the fetcher has to find the offset. Gaps that compaction may have left are expected only below an
offset that the checkpoint already has, together with the leader epochs that began there (RULES K19).
"""

from collections.abc import Sequence

from engine.api import NO_TIMESTAMP_MS, AppendResult, Marker
from engine.batches.batch import HEADER_SIZE_BYTES, MAGIC, BatchHeader, has_right_crc, parse_header
from engine.batches.markers import parse_marker
from engine.commit.appends import Append, Owner, PartitionShare
from engine.compaction_horizon import NOT_COMPACTED, SWAPS_UNKNOWN, Compacted, CompactionHorizon
from engine.errors import CorruptMessage, EngineError, NotLeaderOrFollower, OffsetOutOfRange
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.log import Log
from engine.logs.recovery.epochs import EpochStart
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.roll_policy import RollPolicy
from engine.logs.segments.segment import may_follow
from engine.logs.staging import empty_chunk
from engine.replication.fetch_state import FetchState


class ReplicatedAppend(Append):
    """An append of consecutive batches that were fetched from the leader.

    `begins_segment`: the first batch begins a segment. `compacted`: the traces of compaction that the leader tells.
    """

    __slots__ = ("batches", "begins_segment", "dropped", "epoch_starts", "headers", "markers")

    def __init__(
        self,
        owner: Owner,
        records: memoryview,
        role: "Follower",
        compacted: Compacted,
        *,
        begins_segment: bool,
    ) -> None:
        self.batches, self.headers = checked(records)
        self.begins_segment = begins_segment
        end_offset = self.headers[-1].next_offset
        self.epoch_starts = epochs_below(compacted.epoch_starts, end_offset)
        self.dropped = None if compacted is NOT_COMPACTED else compacted.dropped_below(end_offset, role.epoch)
        self.markers = _markers(self.batches, self.headers)
        super().__init__(owner, records, self.headers[0], role, wants_all=False)

    def result(self, log_start_offset: int) -> AppendResult:
        """The offsets of all its batches together."""
        first, last = self.headers[0], self.headers[-1]
        return AppendResult(first.base_offset, last.next_offset - 1, NO_TIMESTAMP_MS, log_start_offset)


class Follower:
    """The follower role of one partition, in one leader epoch."""

    __slots__ = ("config", "epoch", "fetching", "leader_high_watermark")

    def __init__(self, epoch: int, config: LogConfig, fetching: FetchState) -> None:
        self.epoch = epoch
        self.config = config
        self.fetching = fetching
        self.leader_high_watermark = 0  # of the last Fetch response

    def configure(self, config: LogConfig) -> None:
        """Use this configuration from now on."""
        self.config = config

    def admit(
        self, owner: Owner, records: memoryview, compacted: Compacted, *, begins_segment: bool
    ) -> ReplicatedAppend:
        """Check whole batches and make them an append; raises CorruptMessage."""
        return ReplicatedAppend(owner, records, self, compacted, begins_segment=begins_segment)

    def missing(
        self, records: memoryview, end_offset: int, compacted: Compacted
    ) -> tuple[int, Sequence[EpochStart], CompactionHorizon]:
        """Gaps in fetched records that are to follow a log that ends at `end_offset`.

        Returns the offset below which there are gaps, between or within batches (0: none), the leader epochs that began
        there, and the offsets below which tombstones and markers may be missing. Raises CorruptMessage.
        """
        _, headers = checked(records)
        below_offset = headers[-1].next_offset
        dropped = compacted.dropped_below(below_offset, self.epoch)
        epochs = epochs_below(compacted.epoch_starts, below_offset)
        if below_offset - end_offset == sum(one.record_count for one in headers):
            return 0, epochs, dropped
        if compacted.swaps == SWAPS_UNKNOWN:  # by an older broker
            dropped = CompactionHorizon(below_offset, below_offset, below_offset, self.epoch)
        return below_offset, epochs, dropped

    def stage(self, owner: Owner, log: Log, appends: Sequence[Append]) -> PartitionShare | None:
        """Stage the appends that continue the log; the others are refused."""
        part, end_offset, epoch = PartitionShare(owner, log), log.end.offset, log.epochs.latest
        chunks: list[Chunk] = []
        for append in appends:
            if not isinstance(append, ReplicatedAppend):  # a client's, queued while this broker led
                log.producers.turn_away(append.header)
                append.settle(NotLeaderOrFollower("it was queued under another leader epoch"))
                continue
            error = self._why_not(append, end_offset, epoch, log)
            if error is not None:
                append.settle(error)
                continue
            self._place(append, log, chunks, end_offset)
            part.appends.append(append)
            end_offset, epoch = append.headers[-1].next_offset, append.headers[-1].leader_epoch
            for header in append.headers:
                if header.base_offset in append.markers:
                    part.end_transaction(header, append.markers[header.base_offset], log.producers)
                elif header.has_sequence:
                    part.apply(header, log.producers)
        if not part.appends:
            return None
        part.stage(chunks, log.producers)
        part.must_sync = part.has_marker or self.config.flush_policy is FlushPolicy.SYNC
        return part

    def _why_not(self, append: ReplicatedAppend, end_offset: int, epoch: int, log: Log) -> EngineError | None:
        if append.role is not self:
            return NotLeaderOrFollower("it was fetched under another leader epoch")
        if append.dropped is not None and not log.dropped.covers(append.dropped):
            return OffsetOutOfRange("it is to be noted that tombstones or markers may be missing there")
        expects_gaps = log.epochs.expects(append.epoch_starts)
        for header in append.headers:
            is_whole = header.base_offset == end_offset and header.record_count == header.last_offset_delta + 1
            may_be_thin = expects_gaps and header.next_offset <= log.compacted_to
            if not is_whole and not (may_be_thin and may_follow(header.base_offset, end_offset, log.compacted_to)):
                return OffsetOutOfRange(
                    f"a batch of {header.record_count} records from {header.base_offset} to {header.next_offset} does "
                    f"not continue a log that ends at {end_offset}, and may have gaps below {log.compacted_to}"
                )
            if not epoch <= header.leader_epoch <= self.epoch:
                return CorruptMessage(
                    f"leader epoch {header.leader_epoch} of a batch is not from {epoch} to {self.epoch}"
                )
            end_offset, epoch = header.next_offset, header.leader_epoch
        return None

    def _place(self, append: ReplicatedAppend, log: Log, chunks: list[Chunk], end_offset: int) -> None:
        if append.begins_segment and (chunks or log.active.size_bytes):
            chunks.append(empty_chunk(end_offset, RollPolicy.of(self.config)))  # though compaction may have left a gap
        elif not chunks:
            chunks.append(Chunk(log.active.base_offset, log.active.file, log.active.size_bytes))
        for batch, header in zip(append.batches, append.headers, strict=True):
            chunks[-1].add(batch, header)


def epochs_below(epoch_starts: Sequence[tuple[int, int]], offset: int) -> tuple[EpochStart, ...]:
    """The leader epochs that began below `offset`."""
    return tuple(EpochStart(*one) for one in epoch_starts if one[1] < offset)


def _markers(batches: Sequence[memoryview], headers: Sequence[BatchHeader]) -> dict[int, Marker]:
    """The markers among the batches, by base offset."""
    found = {}
    for batch, header in zip(batches, headers, strict=True):
        if header.is_control and (marker := parse_marker(header, batch)) is not None:
            found[header.base_offset] = marker
    return found


def checked(records: memoryview) -> tuple[list[memoryview], list[BatchHeader]]:
    """Split fetched records into batches, and check the CRC of each: a leader's disk may be damaged, too.

    Kafka's followers check as well. Raises CorruptMessage.
    """
    batches: list[memoryview] = []
    headers: list[BatchHeader] = []
    position = 0
    while position < len(records):
        if len(records) - position < HEADER_SIZE_BYTES:
            raise CorruptMessage(f"{len(records) - position} bytes behind the last batch")
        header = parse_header(records, position)
        batch = records[position : position + header.size_bytes]
        if header.magic != MAGIC or not HEADER_SIZE_BYTES <= header.size_bytes == len(batch):
            raise CorruptMessage(f"there is no whole batch at position {position} of the fetched records")
        if not has_right_crc(batch, header):
            raise CorruptMessage(f"the batch at position {position} of the fetched records does not match its CRC")
        batches.append(batch)
        headers.append(header)
        position += header.size_bytes
    if not batches:
        raise CorruptMessage("nothing was fetched")
    return batches, headers
