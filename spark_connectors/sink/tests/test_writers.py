"""Rows that Spark passes to writers are written once, by a task's properties, and `abort` does nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install -r requirements/spark.txt")

from pyspark import TaskContext
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from spark_connectors.data_source import Kafkawire
from spark_connectors.options import OptionRefused
from spark_connectors.sink.errors import ColumnsRefused
from spark_connectors.sink.options import SinkOptions, sink_options
from spark_connectors.sink.staging import Task
from spark_connectors.sink.tests.world import World
from spark_connectors.sink.writers import BatchWriter, StagedRows, StreamWriter, batch_writer, stream_writer

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@dataclass
class FakeContext:
    """The part of a TaskContext that writers use."""

    partition: int = 0
    attempt: int = 0
    properties: dict[str, str] = field(default_factory=dict)

    def partitionId(self) -> int:  # noqa: N802 # Spark's names
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)


InTask = Callable[[FakeContext], None]


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> InTask:
    """Sets the result of `TaskContext.get()`."""
    return lambda context: monkeypatch.setattr(TaskContext, "_taskContext", context)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "one", "topic": "t", "stagingLocation": str(tmp_path)})


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def of_stream(batch_id: int, partition: int = 0, attempt: int = 0) -> FakeContext:
    return FakeContext(partition, attempt, {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(batch_id)})


def sent(message: StagedRows) -> StagedRows:
    """A message after its way to the driver, for which Spark pickles it."""
    found: StagedRows = pickle.loads(pickle.dumps(message))
    return found


def test_a_stream(world: World, options: SinkOptions, in_task: InTask) -> None:
    for batch_id in range(2):
        messages = []
        for partition in range(2):
            in_task(of_stream(batch_id, partition, attempt=1))
            written = StreamWriter(options, world.network).write(iter([rows(b"%d%d" % (batch_id, partition))]))
            assert written.staged.by == Task("q", batch_id, partition, 1)
            messages.append(sent(written))
        for _ in range(2):
            StreamWriter(options, world.network).commit(messages, batch_id)
    assert sorted(map(str, world.values())) == ["b'00'", "b'01'", "b'10'", "b'11'"]
    assert world.model.records == {"kafkawire-spark-q": 2}


def test_a_job(world: World, options: SinkOptions, in_task: InTask) -> None:
    """A job may be started by a function of a stream, and then has the properties of the stream."""
    writers = [BatchWriter(options, world.network) for _ in range(2)]
    names = set()
    for writer in writers:
        in_task(of_stream(7))
        message = writer.write(iter([rows(b"v")]))
        assert message.staged.by.batch_id is None
        names.add(message.staged.by.query)
        writer.commit([sent(message)])
    assert world.values() == [b"v", b"v"]
    assert len(names) == 2
    assert world.model.records == {}


def test_pickled_writer_writes_for_the_same_task(options: SinkOptions, in_task: InTask) -> None:
    in_task(FakeContext())
    writer = BatchWriter(options)
    there = pickle.loads(pickle.dumps(writer))
    assert there.write(iter([])).staged.by == writer.write(iter([])).staged.by


def test_abort_after_unknown_commit_undoes_nothing(world: World, options: SinkOptions, in_task: InTask) -> None:
    """Trap: Spark aborts a commit without an answer. Files must stay too, because another attempt may need them."""
    in_task(of_stream(0))
    message = StreamWriter(options, world.network).write(iter([rows(*[bytes(10_000)] * 200)]))
    assert message.staged.data is None
    asked = len(world.broker.requests)
    messages: Sequence[StagedRows | None]
    for messages in ([message], [None, None]):
        StreamWriter(options, world.network).abort(messages, 0)
        BatchWriter(options, world.network).abort(messages)
    assert len(world.broker.requests) == asked
    assert Path(message.staged.path).exists()


# --- refusals


def schema(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (schema(key=StringType()), "Required attribute 'value' not found"),
        (schema(value=LongType()), "value attribute unsupported type bigint"),
        (schema(value=StringType(), key=IntegerType()), "key attribute unsupported type int"),
        (schema(value=StringType(), headers=StringType()), "headers attribute unsupported type string"),
        (schema(value=StringType(), partition=LongType()), "partition attribute unsupported type bigint"),
    ],
)
def test_columns(options: SinkOptions, columns: StructType, message: str) -> None:
    with pytest.raises(ColumnsRefused, match=message):
        batch_writer(columns, options, is_overwrite=False)
    with pytest.raises(ColumnsRefused, match=message):
        stream_writer(columns, options)


def test_columns_that_are_taken(options: SinkOptions) -> None:
    columns = schema(
        value=StringType(),
        key=BinaryType(),
        headers=HEADERS,
        partition=IntegerType(),
        topic=LongType(),
        more=LongType(),
    )
    batch_writer(columns, options, is_overwrite=False)
    stream_writer(columns, options)


def test_a_topic_is_not_overwritten(options: SinkOptions) -> None:
    with pytest.raises(OptionRefused, match="Save mode Overwrite not allowed"):
        batch_writer(schema(value=StringType()), options, is_overwrite=True)


def test_output_mode_complete_appends() -> None:
    """Spark calls this mode an overwrite."""
    source = Kafkawire({"kafka.bootstrap.servers": "one", "topic": "t"})
    columns = schema(value=StringType())
    assert isinstance(source.streamWriter(columns, True), StreamWriter)
    assert isinstance(source.writer(columns, False), BatchWriter)
    with pytest.raises(OptionRefused, match="Save mode"):
        source.writer(columns, True)


def test_options_are_looked_at_when_a_writer_is_made() -> None:
    source = Kafkawire({"kafka.bootstrap.servers": "one", "topic": "t", "kafka.acks": "1"})
    with pytest.raises(OptionRefused, match=r"option kafka.acks"):
        source.writer(schema(value=StringType()), False)
    with pytest.raises(ColumnsRefused, match="topic option required when no 'topic' attribute is present"):
        Kafkawire({"kafka.bootstrap.servers": "one"}).streamWriter(schema(value=StringType()), False)
