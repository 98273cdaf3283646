"""`format("kafkawire")` for PySpark 4.2 and 4.3: connects Spark's interfaces with `source` and `sink`, and decides
nothing.

Spark pickles readers to workers, and creates new ones for planning. So each reader checks its options itself, and
connects when it is first asked for something. An error in `initialOffset` is raised later, by `latestOffset`: Spark
calls `initialOffset` on a restart too, where the checkpoint has the position (a starting time may match no record any
more).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_connectors.offsets import Offsets
from spark_connectors.options import OptionRefused
from spark_connectors.records.columns import schema_of
from spark_connectors.segments.access import division_of, planned_by, read_rows
from spark_connectors.sink.options import sink_options
from spark_connectors.sink.writers import BatchWriter, StreamWriter, batch_writer, stream_writer
from spark_connectors.source.bounds import Places
from spark_connectors.source.filters import NO_FILTERS, Filters, filters_of
from spark_connectors.source.options import SourceOptions, source_options
from spark_connectors.source.planner import StreamPlanner, batch_ranges
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.schema import declared
from spark_connectors.wire import FIRST_CONTACT_S, Cluster

NAME = "kafkawire"
_REFUSED_START = "@refused"  # not a valid name of a topic


class Kafkawire(DataSource):  # type: ignore[misc] # its types are not looked at
    """Topics of a Kafka cluster as tables and streams, with the columns and the options of Spark's `kafka` source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name in `format("kafkawire")`."""
        return NAME

    def schema(self) -> str:
        """The columns as DDL. Raises OptionRefused if neither a batch nor a stream accepts the options."""
        try:
            return declared(source_options(self.options, is_stream=False).columns)
        except OptionRefused as error:
            try:
                return declared(source_options(self.options, is_stream=True).columns)
            except OptionRefused:
                raise error from None

    def reader(self, schema: StructType) -> BatchReader:
        """Raises OptionRefused."""
        options = source_options(self.options, is_stream=False)
        _check_schema(schema, options)
        return FilteringReader(options) if options.has_filters_pushed else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 # Spark's name
        """Raises OptionRefused."""
        options = source_options(self.options, is_stream=True)
        _check_schema(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Raises OptionRefused, ColumnsRefused."""
        return batch_writer(schema, sink_options(self.options), is_overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Raises OptionRefused, ColumnsRefused."""
        return stream_writer(schema, sink_options(self.options))


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    if tuple(schema.fieldNames()) != options.columns:
        raise OptionRefused(
            f"the source has a schema of its own, {', '.join(options.columns)}: say with the option columns which of "
            f"them are wanted"
        )


class RangePartition(InputPartition):  # type: ignore[misc]
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


def _read(options: SourceOptions, partition: InputPartition, filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
    """Rows of a partition. If there is nothing to read, Spark passes a partition of its own, which has no rows."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_rows(options, partition.wanted, schema_of(options.columns), filters)


def _tasks(ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    return [RangePartition(one) for one in ranges]


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reader of a batch query."""

    def __init__(self, options: SourceOptions) -> None:
        self._filters = NO_FILTERS
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Raises WireError, LimitRefused, TopicRecreated, CatalogueUnavailable."""
        with planned_by(self._options) as (places, division):
            return _tasks(batch_ranges(self._options, places, self._filters, division))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one partition; runs in a task."""
        return _read(self._options, partition, self._filters)


class FilteringReader(BatchReader):
    """Reader of a batch query that leaves out rows by pushed filters. Its frame is safe for one set of filters only."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Keep the filters; Spark calls this first. Returns all of them, so that Spark applies them too."""
        self._filters = filters_of(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reader of a streaming query: one on the driver for planning, and another one in each task."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._planner: StreamPlanner | None = None
        self._refusal: Exception | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the query starts. Never raises, because Spark ignores the result on a restart."""
        try:
            return self._plan().initial().to_json()
        except Exception as error:  # raised later, by latestOffset, if the start matters
            self._refusal = error
            return {_REFUSED_START: {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a batch. Spark takes one of the two limits; `latestOffset` adds the other one."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch. Raises WireError, TopicRecreated, and the error kept by `initialOffset`."""
        known = self._offsets(start)
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        min_offsets = None if isinstance(limit, ReadAllAvailable) else self._options.min_offsets_per_trigger
        found = self._plan().latest(known, max_offsets, min_offsets)
        return start if found is known else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest known end offsets, for progress reports."""
        reported = self._plan().reported
        return None if reported is None or not reported.positions else reported.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: the offsets that exist when the first batch is planned."""
        self._plan().read_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises WireError, DataLoss, TopicRecreated."""
        return _tasks(self._plan().ranges(self._offsets(start), self._offsets(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one partition; runs in a task."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint of the query has its position."""

    def stop(self) -> None:
        """Disconnect."""
        if self._cluster is not None:
            self._cluster.close()

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._cluster = Cluster(self._options.bootstrap, self._options.settings, first_contact_s=FIRST_CONTACT_S)
            places = Places(self._cluster, self._options)
            self._planner = StreamPlanner(self._options, places, division=division_of(self._options))
        return self._planner

    def _offsets(self, data: Mapping[str, Any]) -> Offsets:
        if _REFUSED_START in data and self._refusal is not None:
            raise self._refusal
        return Offsets.from_json(data)
