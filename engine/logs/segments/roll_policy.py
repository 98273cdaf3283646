"""The rules for when a segment is full and the next one begins."""

from typing import NamedTuple
from zlib import crc32

from engine.api import NO_TIMESTAMP_MS
from engine.batches.batch import BatchHeader
from engine.log_config import CleanupPolicy, LogConfig
from engine.logs.segments.segment import Segment, segment_name

SEGMENT_OFFSETS_MAX = 2**31 - 1  # Kafka's tools keep offsets relative to the segment in 32 bits
INDEX_ENTRY_SIZE_BYTES = 12  # of Kafka's time index: segment.index.bytes allows as many entries here


class RollPolicy(NamedTuple):
    """The limits of a segment, as in LogSegment.shouldRoll. `jitter_ms` spreads the rolls of segments that began
    together."""

    segment_size_bytes: int
    age_ms: int
    jitter_ms: int
    index_size_bytes: int
    preallocates: bool

    @property
    def allocated_bytes(self) -> int:
        """Bytes to preallocate for a new segment."""
        return self.segment_size_bytes if self.preallocates else 0

    @classmethod
    def of(cls, config: LogConfig) -> "RollPolicy":
        age_ms = config.segment_age_ms
        if CleanupPolicy.COMPACT in config.cleanup_policy:  # only finished segments are compacted (KIP-354)
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        sizes = config.segment_size_bytes, age_ms, config.segment_jitter_ms
        return cls(*sizes, config.segment_index_size_bytes, config.preallocate)

    def is_old(self, active: Segment, header: BatchHeader, now_ms: int, directory: str) -> bool:
        """Whether the segment is too old for the batch of `header`, or its index is full.

        The age is the difference between the timestamps of its first batch and of `header`, or wall clock time if they
        have none. Earlier batches of the same commit batch do not count.
        """
        if not active.size_bytes:
            return False
        first_ms, last_ms = active.first_timestamp_ms, header.max_timestamp_ms
        if first_ms == NO_TIMESTAMP_MS or last_ms == NO_TIMESTAMP_MS:
            first_ms, last_ms = active.started_ms, now_ms
        if active.entries >= max(1, self.index_size_bytes // INDEX_ENTRY_SIZE_BYTES - 1):
            return True
        age_ms = self.age_ms
        if self.jitter_ms:
            jitter_ms = crc32(f"{directory}/{segment_name(active.base_offset)}".encode()) % (self.jitter_ms + 1)
            age_ms -= min(jitter_ms, age_ms)
        return last_ms - first_ms > age_ms
