"""A topic as a job's driver sees it: offsets of its partitions, and ranges for tasks, with or without brokers."""

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

TASK_OFFSETS: Final = 2_000_000  # of a task that fetches, if the options do not say


class TopicLog:
    """The only topic that the options select. `with` disconnects. Methods raise WireError or CatalogueUnavailable."""

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
        """First offset of each partition."""
        return self.at(Edge.EARLIEST)

    def ends(self) -> dict[int, int]:
        """End offset of each partition; with read_committed, the last stable offset."""
        return self.at(Edge.LATEST)

    def at(self, limit: Limit) -> dict[int, int]:
        """Offset of each partition for a limit. Raises LimitRefused; TopicRecreated if the topic was created again."""
        found = self._places.at(limit, is_starting=limit is not Edge.LATEST)
        Offsets({}, {self.topic: self.topic_id}).check_ids(found.ids)
        return {place.partition: offset for place, offset in found.positions.items()}

    def ranges(self, spans: Iterable[Span], tasks_min: int = 1) -> list[OffsetRange]:
        """Ranges for tasks that together make the spans. Offsets that retention deletes before they are read are no
        error.
        """
        whole = [
            OffsetRange(TopicPartition(self.topic, one.partition), self.topic_id, one.start, one.end, is_earliest=True)
            for one in joined(spans)
        ]
        options = self.options
        return self._division(
            whole, options.min_partitions or tasks_min, options.max_records_per_partition or TASK_OFFSETS
        )


def rows_in(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Rows of a range with all columns; runs in a task. Raises the errors of a query's task."""
    return read_rows(options, wanted, schema_of(COLUMNS))
