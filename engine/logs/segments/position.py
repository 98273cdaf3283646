"""Positions in a log: an offset, and its place in a segment file (Kafka's LogOffsetMetadata)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class LogPosition(NamedTuple):
    """A place between two batches, and the greatest timestamp of the log before it (-1: not known)."""

    offset: int
    segment_base_offset: int
    position: int
    max_timestamp_ms: int


position_of: Callable[[tuple[int, int, int, int]], LogPosition] = partial(tuple.__new__, LogPosition)  # spares a call
