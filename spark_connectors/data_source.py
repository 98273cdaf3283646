"""`format("kafkawire")` for PySpark 4.2 and 4.3: hands over from Spark's interfaces to `source` and `sink`, and
decides nothing.

Readers are pickled to workers, and made anew for planning, so each looks at its options by itself, and connects when it
is asked something. What a planner cannot do when Spark asks where a query starts, it says when that matters: Spark asks
on a restart, too, where the checkpoint knows better (a starting time may match no record any more).
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
from spark_connectors.source.filters import NO_FILTERS, Filters, filters_of
from spark_connectors.source.options import SourceOptions, source_options
from spark_connectors.source.places import Places
from spark_connectors.source.planner import StreamPlanner, batch_ranges
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.schema import declared
from spark_connectors.wire import Cluster

NAME = "kafkawire"
_REFUSED_START = "@refused"  # no name of a topic


class Kafkawire(DataSource):  # type: ignore[misc] # its types are not looked at
    """Topics of a Kafka cluster as tables and streams, with the columns and the options of Spark's `kafka` source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """As in `format`."""
        return NAME

    def schema(self) -> str:
        """Raises OptionRefused for what neither a batch nor a stream can be asked for."""
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
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


def _read(options: SourceOptions, partition: InputPartition, filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
    """Where there is nothing to read Spark makes a partition of its own."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_rows(options, partition.wanted, schema_of(options.columns), filters)


def _tasks(ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    return [RangePartition(one) for one in ranges]


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Of a batch query."""

    def __init__(self, options: SourceOptions) -> None:
        self._filters = NO_FILTERS
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Raises WireError, LimitRefused, TopicRecreated, CatalogueUnavailable."""
        with planned_by(self._options) as (places, division):
            return _tasks(batch_ranges(self._options, places, self._filters, division))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        return _read(self._options, partition, self._filters)


class FilteringReader(BatchReader):
    """Of one that may leave out rows that it does not want, with which Spark lets no frame be used in two ways."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Called before anything else. Returns all: Spark applies them, too."""
        self._filters = filters_of(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Of a streaming query: on the driver for planning, and another one in each task."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._planner: StreamPlanner | None = None
        self._refusal: Exception | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Never raises: on a restart nobody looks at what it returns."""
        try:
            return self._plan().initial().to_json()
        except Exception as error:  # whatever it is, it is raised when it matters
            self._refusal = error
            return {_REFUSED_START: {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark can carry one of the two; the other one is added where it is used."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises WireError, TopicRecreated, and what kept `initialOffset` from telling where to start."""
        known = self._offsets(start)
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        min_offsets = None if isinstance(limit, ReadAllAvailable) else self._options.min_offsets_per_trigger
        found = self._plan().latest(known, max_offsets, min_offsets)
        return start if found is known else found.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For progress reports."""
        reported = self._plan().reported
        return None if reported is None or not reported.positions else reported.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there when the first batch is planned is what the query reads."""
        self._plan().read_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises WireError, DataLoss, TopicRecreated."""
        return _tasks(self._plan().ranges(self._offsets(start), self._offsets(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: where the query has come to is in its checkpoint."""

    def stop(self) -> None:
        """Disconnects."""
        if self._cluster is not None:
            self._cluster.close()

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._cluster = Cluster(self._options.bootstrap, self._options.settings)
            places = Places(self._cluster, self._options)
            self._planner = StreamPlanner(self._options, places, division=division_of(self._options))
        return self._planner

    def _offsets(self, data: Mapping[str, Any]) -> Offsets:
        if _REFUSED_START in data and self._refusal is not None:
            raise self._refusal
        return Offsets.from_json(data)
