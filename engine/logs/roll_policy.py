"""When a segment is full."""

from typing import NamedTuple

from engine.api import CleanupPolicy, LogConfig


class RollPolicy(NamedTuple):
    """When a segment is full, as LogSegment.shouldRoll has it. `jitter_ms` spreads those that began together."""

    segment_size_bytes: int
    age_ms: int
    jitter_ms: int
    index_size_bytes: int
    preallocates: bool

    @property
    def allocated_bytes(self) -> int:
        """Of space, for a segment that begins."""
        return self.segment_size_bytes if self.preallocates else 0

    @classmethod
    def of(cls, config: LogConfig) -> "RollPolicy":
        age_ms = config.segment_age_ms
        if CleanupPolicy.COMPACT in config.cleanup_policy:  # what is compacted is full segments (KIP-354)
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        sizes = config.segment_size_bytes, age_ms, config.segment_jitter_ms
        return cls(*sizes, config.segment_index_size_bytes, config.preallocate)
