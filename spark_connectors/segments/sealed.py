"""Sealed segments of a partition, as brokers and the tier describe them: docs/formats/sealed-segments.md.

Values only. They go to executors with the tasks that read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spark_connectors.wire import TopicPartition

Aborted = tuple[tuple[int, int, int], ...]  # producer id, first and last offset


class Segment(NamedTuple):
    """A sealed segment with the offsets [base, end). Segments with the same `digest` have the same batches.

    Timestamps of records are between `min_timestamp_ms` (-1: unknown) and `max_timestamp_ms`. `aborted`: aborted
    transactions with offsets in the segment; None: only the object's trailer has them. `positions`: (offset, position)
    of some batches, as hints. `key`: of its object in the store; `path`: of its file; None: unknown or missing.
    `records`: their number; -1: unknown.
    """

    base: int
    end: int
    size_bytes: int
    max_timestamp_ms: int
    digest: str
    aborted: Aborted | None = None
    positions: tuple[tuple[int, int], ...] = ()
    key: str | None = None
    path: str | None = None
    min_timestamp_ms: int = -1
    records: int = -1


@dataclass(frozen=True)
class Sealed:
    """Sealed segments of one partition. They contain all offsets from `log_start` up to `end`, ascending and without
    gaps, as far as they were asked for.

    `store`: location of the objects, as a URL without credentials; None: there is none.
    """

    place: TopicPartition
    topic_id: bytes
    log_start: int
    end: int
    segments: tuple[Segment, ...]
    store: str | None = None


class CatalogueUnavailable(Exception):
    """The sealed segments cannot be looked up now, or not there."""


class Catalogue(Protocol):
    """Catalogue of sealed segments. It is pickled to executors, which ask again when a segment is gone."""

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        """Segments with offsets in [start, end); None: that topic id is unknown there. Raises CatalogueUnavailable."""
