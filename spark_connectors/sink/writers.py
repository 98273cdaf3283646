"""PySpark's writers: they connect Spark's interfaces with `task` and `commit`, and decide nothing.

A writer is created on the driver and pickled to tasks. To commit a micro-batch of a stream, a new one is created, in a
process that knows no task. So query and micro-batch go with the staged rows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_connectors.options import OptionRefused
from spark_connectors.sink.columns import check_columns
from spark_connectors.sink.commit import commit
from spark_connectors.sink.options import SinkOptions
from spark_connectors.sink.staging import Staged, Task
from spark_connectors.sink.task import stage
from spark_connectors.wire import Cluster
from spark_connectors.wire.transport import Connect, connect_tcp

_QUERY = "sql.streaming.queryId"  # set by Spark for tasks of a stream, as local properties
_BATCH = "streaming.sql.batchId"


class StagedRows(WriterCommitMessage):  # type: ignore[misc] # its types are not looked at
    """Message at the end of a task's attempt."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of one batch job with a unique name: all of it is written, or nothing."""

    def __init__(self, options: SinkOptions, connect: Connect = connect_tcp) -> None:
        self._options = options
        self._connect = connect
        self._job = f"job-{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage rows, in a task. Raises RowRefused, RecordTooLarge, WireError, OSError."""
        context = TaskContext.get()
        by = Task(self._job, None, context.partitionId(), context.attemptNumber())
        return _staged(iterator, by, self._options, self._connect)

    def commit(self, messages: Sequence[StagedRows | None]) -> None:
        """Commit on the driver, when all tasks are done. Raises as `commit.commit` does."""
        _commit(messages, self._options, self._connect)

    def abort(self, messages: Sequence[StagedRows | None]) -> None:
        """Do nothing: see `commit`."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of the micro-batches of one query. Each is written once."""

    def __init__(self, options: SinkOptions, connect: Connect = connect_tcp) -> None:
        self._options = options
        self._connect = connect

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage rows, in a task. Raises RowRefused, RecordTooLarge, WireError, OSError."""
        context = TaskContext.get()
        query, batch_id = context.getLocalProperty(_QUERY), int(context.getLocalProperty(_BATCH))
        by = Task(query, batch_id, context.partitionId(), context.attemptNumber())
        return _staged(iterator, by, self._options, self._connect)

    def commit(self, messages: Sequence[StagedRows | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """Commit on the driver, when all tasks are done. Raises as `commit.commit` does."""
        _commit(messages, self._options, self._connect)

    def abort(self, messages: Sequence[StagedRows | None], batchId: int) -> None:  # noqa: N803
        """Do nothing, because the micro-batch may be committed: Spark also calls this after an error of `commit`."""


def batch_writer(schema: StructType, options: SinkOptions, *, is_overwrite: bool) -> BatchWriter:
    """Raises ColumnsRefused, OptionRefused."""
    if is_overwrite:
        raise OptionRefused("Save mode Overwrite not allowed: a topic is only appended to, with Append")
    _check(schema, options)
    return BatchWriter(options)


def stream_writer(schema: StructType, options: SinkOptions) -> StreamWriter:
    """Writer of a stream. Output mode complete appends all rows each time, as with Spark's kafka sink.

    Raises ColumnsRefused.
    """
    _check(schema, options)
    return StreamWriter(options)


def _check(schema: StructType, options: SinkOptions) -> None:
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)


def _staged(batches: Iterator[pa.RecordBatch], by: Task, options: SinkOptions, connect: Connect) -> StagedRows:
    with Cluster(options.bootstrap, options.settings, connect=connect) as cluster:
        return StagedRows(stage(batches, by, options, cluster.count_partitions, _now_ms))


def _commit(messages: Sequence[StagedRows | None], options: SinkOptions, connect: Connect) -> None:
    with Cluster(options.bootstrap, options.settings, connect=connect) as cluster:
        commit([one.staged for one in messages if one is not None], options, cluster)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
