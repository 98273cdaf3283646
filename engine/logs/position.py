"""Places in a log: an offset, and where in which file that is (Kafka's LogOffsetMetadata)."""

from typing import NamedTuple


class LogPosition(NamedTuple):
    """A place between two batches, and the greatest timestamp of the log before it."""

    offset: int
    segment_base_offset: int
    position: int
    max_timestamp_ms: int
