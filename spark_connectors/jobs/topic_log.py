"""A topic as a job's driver sees it: where its partitions begin and end now, and how parts of them are divided among
tasks. With brokers or without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from spark_connectors.jobs.spans import Span, joined
from spark_connectors.offsets import Offsets
from spark_connectors.records.columns import COLUMNS, schema_of
from spark_connectors.segments.access import planned_by, read_rows
from spark_connectors.source.options import Edge, Limit, SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import TopicPartition

TASK_OFFSETS: Final = 2_000_000  # of a task that fetches, where the options do not say


class TopicLog:
    """Of the one topic that the options select. `with` disconnects; every method raises WireError or
    CatalogueUnavailable."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        (self.topic,) = options.selection.topics
        self._stack = ExitStack()
        self._places, self._division = self._stack.enter_context(planned_by(options))
        self.topic_id = self._places.at(Edge.LATEST, is_starting=False).ids[self.topic]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def starts(self) -> dict[int, int]:
        """Of each partition."""
        return self.at(Edge.EARLIEST)

    def ends(self) -> dict[int, int]:
        """As far as it may be read by the options."""
        return self.at(Edge.LATEST)

    def at(self, limit: Limit) -> dict[int, int]:
        """Raises LimitRefused, and TopicRecreated if it is another topic now."""
        found = self._places.at(limit, is_starting=limit is not Edge.LATEST)
        Offsets({}, {self.topic: self.topic_id}).check_ids(found.ids)
        return {place.partition: offset for place, offset in found.positions.items()}

    def ranges(self, spans: Iterable[Span], tasks_min: int = 1) -> list[OffsetRange]:
        """Of tasks, together the spans; what retention takes of them before it is read, is not missed."""
        whole = [
            OffsetRange(TopicPartition(self.topic, one.partition), self.topic_id, one.start, one.end, is_earliest=True)
            for one in joined(spans)
        ]
        options = self.options
        return self._division(
            whole, options.min_partitions or tasks_min, options.max_records_per_partition or TASK_OFFSETS
        )


def rows_in(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of a range with all columns. Raises as a query's task does."""
    return read_rows(options, wanted, schema_of(COLUMNS))
