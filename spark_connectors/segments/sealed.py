"""What is sealed of a partition, as kafkawire's brokers and its tier tell it: docs/formats/sealed-segments.md.

Values only. They go to executors with the tasks that read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spark_connectors.wire import TopicPartition

Aborted = tuple[tuple[int, int, int], ...]  # producer id, first and last offset of each


class Segment(NamedTuple):
    """Its offsets are [base, end). `digest`: two with the same one hold the same batches.

    No record is later than `max_timestamp_ms`, or earlier than `min_timestamp_ms`, which is -1 where that is not known.
    `aborted`: the transactions that were aborted and touch it; None: the object says so behind its records.
    `positions`: (offset, position) of some batches, hints. `key`: of its object in the store, `path`: of its file; what
    is None is not known, or not there. `records`: how many it has; -1: nobody has said.
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
    """Of one partition: everything from `log_start` up to `end` is in these segments, ascending and without gaps, as
    far as they were asked for.

    `store`: where objects are, as a URL without credentials; None: there is none.
    """

    place: TopicPartition
    topic_id: bytes
    log_start: int
    end: int
    segments: tuple[Segment, ...]
    store: str | None = None


class CatalogueUnavailable(Exception):
    """What is sealed cannot be told, now or by whoever was asked."""


class Catalogue(Protocol):
    """Knows what is sealed. It is pickled to executors, which ask again when something is gone."""

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        """The segments with offsets in [start, end); None: nothing is known of that topic id there. Raises
        CatalogueUnavailable."""
