"""kafkawire's sink beside Spark's own: the same rows in the same partitions, each micro-batch once, despite kills."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from compat_tests.applications.spark.faulty import Faulty, Trouble
from compat_tests.applications.spark.kill_plan import COMMITTING
from compat_tests.applications.spark.queries import LIMITS, OURS, STOCK, await_end, fill, run_to_end
from compat_tests.clients.confluent.clients import Admin, create_topic, wait_until
from compat_tests.features.transactions.readers import wait_for_markers
from compat_tests.harness.processes import children_of, kill
from compat_tests.harness.requirements import ROOT
from compat_tests.harness.target import target_broker
from spark_connectors.sink.commit import NAME_PREFIX, commit
from spark_connectors.sink.errors import Fenced
from spark_connectors.sink.options import SinkOptions, sink_options
from spark_connectors.sink.relay import RelayOutcome
from spark_connectors.sink.staging import Staged, Task
from spark_connectors.sink.task import stage
from spark_connectors.wire import Cluster
from spark_connectors.wire.messages.end_txn import END_TXN
from spark_connectors.wire.messages.init_producer_id import INIT_PRODUCER_ID
from spark_connectors.wire.messages.offset_fetch import OFFSET_FETCH
from spark_connectors.wire.transport import Connect, connect_tcp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from compat_tests.harness.broker import Broker

RECORDS = 40  # of a topic that is copied
BY_STEPS = {"maxOffsetsPerTrigger": "20"}  # of those: two micro-batches
WITHIN_S = 180.0  # a driver that starts beside other tests may take a minute

# Keys, values and headers that are there, empty or null; some rows say their partition. Two values are so large that
# they are staged in a file.
ROWS = """
    select if(id % 5 = 0, null, if(id % 5 = 1, '', 'key ' || id % 37)) key,
           cast(if(id % 7 = 0, null, if(id % 7 = 1, '', id || repeat('.', if(id in (9, 17), 900000, 9))))
                as binary) value,
           if(id % 3 = 0, null, array(named_struct('key', 'a', 'value', cast('b' as binary)),
                                      named_struct('key', '', 'value', null))) headers,
           cast(if(id % 5 = 0, id % 3, null) as int) partition,
           '{topic}' || id % 2 topic,
           id as other
    from range(0, 600, 1, 1)
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker to be killed, without automatic topic creation."""
    with target_broker(tmp_path_factory.mktemp("strict"), {"auto.create.topics.enable": "false"}) as running:
        yield running


def to(broker: Broker, topic: str | None = None, **more: str) -> dict[str, str]:
    """The options of a sink for that broker."""
    where = {} if topic is None else {"topic": topic}
    return {"kafka.bootstrap.servers": broker.bootstrap, **where, **more}


def read(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    """The committed records, by Spark's own source."""
    reader = spark.read.format(STOCK).options(**to(broker), **LIMITS)
    return reader.options(subscribe=topic, includeHeaders="true", **{"kafka.isolation.level": "read_committed"}).load()


def numbers(spark: SparkSession, broker: Broker, topic: str, partitions: int = 1) -> list[int]:
    """The numbers in a topic without open transactions."""
    wait_for_markers(broker, topic, partitions)
    return sorted(int(bytes(row.value)) for row in read(spark, broker, topic).select("value").collect())


# --- jobs


def test_the_same_rows_as_by_the_stock_sink(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """The partition of rows with neither key nor partition is arbitrary, so there are none here."""
    found = []
    for sink, options in ((STOCK, {}), (OURS, {"stagingLocation": str(tmp_path)})):
        for parity in (0, 1):
            create_topic(broker, f"{topic}-{sink}-{parity}", partitions=3)
        rows = spark.sql(ROWS.format(topic=f"{topic}-{sink}-"))
        rows.write.format(sink).options(**to(broker, **options)).mode("append").save()
        for parity in (0, 1):
            wait_for_markers(broker, f"{topic}-{sink}-{parity}", 3)
        frame = read(spark, broker, f"{topic}-{sink}-0,{topic}-{sink}-1")
        records = frame.selectExpr("right(topic, 1)", "partition", "offset", "key", "value", "headers").collect()
        in_order: dict[tuple[str, int], list[Any]] = {}
        for parity, partition, _, *record in sorted(map(tuple, records), key=lambda row: row[:3]):
            in_order.setdefault((parity, partition), []).append(record)
        found.append(in_order)
    assert sum(map(len, found[0].values())) == 600
    assert len(found[0]) == 6
    assert found[1] == found[0]
    assert not list((tmp_path / "kafkawire-spark").iterdir())


def test_rows_without_a_key_go_everywhere(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Rows without a key go to one partition for a batch, and to another one for the next batch."""
    create_topic(broker, topic, partitions=3)
    frame = spark.range(20_000).selectExpr("cast(id as string) value")
    frame.write.format(OURS).options(**to(broker, topic)).mode("append").save()
    assert numbers(spark, broker, topic, 3) == list(range(20_000))
    assert {row.partition for row in read(spark, broker, topic).select("partition").collect()} == {0, 1, 2}


def test_a_job_without_rows(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.createDataFrame([], "value string")
    frame.write.format(OURS).options(**to(broker, topic)).mode("append").save()
    assert topic not in Admin(broker).topics()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("overwrite", "Save mode Overwrite not allowed"),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
    ],
)
def test_save_modes(spark: SparkSession, broker: Broker, topic: str, mode: str, message: str) -> None:
    """Save modes. The default of Spark is accepted by its own sink; sinks written in Python are not asked."""
    frame = spark.range(1).selectExpr("cast(id as string) value")
    with pytest.raises(Exception, match=message):
        frame.write.format(OURS).options(**to(broker, topic)).mode(mode).save()


def test_columns_that_are_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    for columns, message in (("id", "Required attribute 'value' not found"), ("id value", "unsupported type bigint")):
        with pytest.raises(Exception, match=message):
            spark.range(1).selectExpr(columns).write.format(OURS).options(**to(broker, topic)).mode("append").save()


def test_a_job_is_written_as_a_whole_or_not_at_all(spark: SparkSession, strict: Broker, topic: str) -> None:
    """A job writes all its rows or none, if the last row is too large for its topic or for any, or its topic is
    missing."""
    create_topic(strict, topic, config={"max.message.bytes": "2000"})
    frame = spark.range(0, 50, 1, 2).selectExpr("repeat('x', if(id = 49, 1100000, 100)) value")

    def write(frame: DataFrame, **options: str) -> None:
        frame.write.format(OURS).options(**options).mode("append").save()

    with pytest.raises(Exception, match=r"1\d{6} bytes.*max.request.size"):
        write(frame, **to(strict, topic))
    with pytest.raises(Exception, match=r"max.message.bytes is below the size that kafka.batch.size allows a batch"):
        write(frame.selectExpr("left(value, 90000) value"), **to(strict, topic))
    assert read(spark, strict, topic).count() == 0
    with pytest.raises(Exception, match="topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"):
        write(frame, **to(strict, "nowhere", **{"kafka.delivery.timeout.ms": "5000"}))


# --- streams


@dataclass(frozen=True)
class Copy:
    """A query that copies a topic with numbered records to another one."""

    spark: SparkSession
    broker: Broker
    topic: str
    directory: Path

    @property
    def source(self) -> str:
        return f"{self.topic}.source"

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def create(self) -> None:
        create_topic(self.broker, self.source)
        create_topic(self.broker, self.topic, partitions=3)
        fill(self.broker, self.source, 0, RECORDS)

    def source_options(self) -> dict[str, str]:
        return to(self.broker, subscribe=self.source, startingOffsets="earliest", **BY_STEPS)

    def sink_options(self, **more: str) -> dict[str, str]:
        return to(self.broker, self.topic, checkpointLocation=str(self.checkpoint), **more)

    def start(self, sink: str, **more: str) -> StreamingQuery:
        """Start a query that copies the records that are there."""
        frame = self.spark.readStream.format(OURS).options(**self.source_options()).load()
        writer = frame.select("key", "value").writeStream.format(sink).options(**self.sink_options(**more))
        return writer.trigger(availableNow=True).start()

    def run(self, sink: str = OURS, **more: str) -> None:
        await_end(self.start(sink, **more))

    def commits(self) -> list[int]:
        """The micro-batches that Spark has recorded as done."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal())

    def forget_the_last_commit(self) -> None:
        last = self.commits()[-1]
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        return numbers(self.spark, self.broker, self.topic, 3)

    def is_empty(self) -> bool:
        """Whether no record is committed; transactions may be open."""
        return bool(read(self.spark, self.broker, self.topic).isEmpty())


@pytest.fixture
def copy(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Copy:
    made = Copy(spark, broker, topic, tmp_path)
    made.create()
    return made


@pytest.fixture
def trouble(spark: SparkSession, tmp_path: Path) -> Iterator[Trouble]:
    """A fault at EndTxn."""
    spark.dataSource.register(Faulty)
    (tmp_path / "trouble").mkdir()
    with Trouble(str(tmp_path / "trouble"), END_TXN.key) as made:
        yield made


def at(trouble: Trouble) -> dict[str, str]:
    how = "cut" if trouble.is_cut else "held"
    return {"fault": trouble.directory, "faultAt": str(trouble.api_key), "faultIs": how}


def test_a_stream_writes_each_row_once_if_its_last_commit_is_lost(copy: Copy) -> None:
    """A stream goes on as if the driver had died before it stored that a micro-batch is done."""
    copy.run()
    assert copy.numbers() == list(range(RECORDS))
    assert len(copy.commits()) >= 2
    copy.forget_the_last_commit()
    fill(copy.broker, copy.source, RECORDS, 5)
    copy.run()
    assert copy.numbers() == list(range(RECORDS + 5))


def test_micro_batches_without_rows(spark: SparkSession, copy: Copy) -> None:
    """Micro-batches without rows, among others: each of them is recorded, and so is the next one."""
    frame = spark.readStream.format(OURS).options(**copy.source_options()).load()
    wanted = frame.select("key", "value").where("cast(cast(value as string) as int) % 30 = 29")
    for total in (RECORDS, RECORDS + 30):
        run_to_end(wanted.writeStream.format(OURS).options(**copy.sink_options()))
        assert copy.numbers() == list(range(29, total, 30))
        fill(copy.broker, copy.source, total, 30)
    assert len(copy.commits()) > len(copy.numbers())


def test_output_modes(spark: SparkSession, copy: Copy) -> None:
    """Output mode complete: Spark's kafka sink appends everything each time. Update is not possible for sinks in
    Python."""
    frame = spark.readStream.format(OURS).options(**{**copy.source_options(), "maxOffsetsPerTrigger": "1000"}).load()
    counts = frame.groupBy().count().selectExpr("cast(count as string) value")
    writer = counts.writeStream.format(OURS).options(**copy.sink_options()).trigger(availableNow=True)
    with pytest.raises(Exception, match="does not support Update mode"):
        await_end(writer.outputMode("update").start())
    await_end(writer.outputMode("complete").start())
    assert copy.numbers() == [RECORDS]


def test_abort_after_unknown_commit_undoes_nothing(copy: Copy, trouble: Trouble) -> None:
    """Trap: the transaction is committed, no process gets the answer, and Spark aborts and fails."""
    trouble.is_cut = True
    with pytest.raises(Exception, match="given up after"):
        copy.run("faulty", **at(trouble), **{"kafka.delivery.timeout.ms": "5000"})
    assert trouble.outcome == "GaveUp"
    done = copy.numbers()
    assert done
    copy.run()
    assert copy.numbers() == list(range(RECORDS))


def test_a_broker_dies_while_a_micro_batch_is_committed(
    spark: SparkSession, strict: Broker, topic: str, tmp_path: Path, trouble: Trouble
) -> None:
    copy = Copy(spark, strict, topic, tmp_path)
    copy.create()
    query = copy.start("faulty", **at(trouble))
    wait_until(lambda: trouble.is_reached or not query.isActive, "nothing is committed", WITHIN_S)
    strict.kill()
    strict.start()
    trouble.release()
    await_end(query)
    assert copy.numbers() == list(range(RECORDS))


def test_rows_are_written_once_after_a_failed_task_and_a_dead_driver(copy: Copy, trouble: Trouble) -> None:
    """Trap: rows that were staged twice are written once, and a process that commits outlives its driver."""
    (trouble.path / "fail").touch()
    command = [sys.executable, "-m", "compat_tests.applications.spark.driver", json.dumps(copy.source_options())]
    command.append(json.dumps(copy.sink_options(**at(trouble))))
    with (copy.directory / "log").open("wb") as log:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until(lambda: trouble.is_reached or driver.poll() is not None, "nothing is committed", WITHIN_S)
        assert {path.name for path in trouble.path.glob("attempt *")} == {"attempt 0", "attempt 1"}
    finally:
        kill_with_its_jvm(driver)
    assert copy.is_empty()
    copy.run()
    assert copy.numbers() == list(range(RECORDS))
    trouble.release()
    wait_until(lambda: trouble.outcome is not None, "nothing is heard of the process that was held", WITHIN_S)
    assert trouble.outcome == "Fenced"
    assert copy.numbers() == list(range(RECORDS))


def kill_with_its_jvm(driver: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and Spark's daemon, which would end the processes that it has forked; those live on."""
    for jvm in children_of(driver.pid):
        for daemon in children_of(jvm):
            kill(daemon)
        kill(jvm)
    driver.kill()
    driver.wait(WITHIN_S)


def test_a_checkpoint_older_than_the_record_of_its_query_is_refused(copy: Copy) -> None:
    """A checkpoint that was put back may read other rows under the same batch numbers."""
    copy.run()
    older = copy.directory / "older"
    shutil.copytree(copy.checkpoint, older)
    for total in (RECORDS + 5, RECORDS + 10):
        fill(copy.broker, copy.source, total - 5, 5)
        copy.run()
    shutil.rmtree(copy.checkpoint)
    older.rename(copy.checkpoint)
    with pytest.raises(Exception, match=r"micro-batch \d+ is to be written, .* The checkpoint is an older one"):
        copy.run()
    assert copy.numbers() == list(range(RECORDS + 10))


def test_a_query_that_another_sink_has_written_before(copy: Copy) -> None:
    copy.run(STOCK)
    fill(copy.broker, copy.source, RECORDS, 5)
    with pytest.raises(Exception, match=r"nothing tells whether micro-batch \d+ is written .* onMissingRecord=accept"):
        copy.run()
    copy.run(onMissingRecord="accept")
    assert copy.numbers() == list(range(RECORDS + 5))
    fill(copy.broker, copy.source, RECORDS + 5, 5)
    copy.run(STOCK)
    fill(copy.broker, copy.source, RECORDS + 10, 5)
    with pytest.raises(Exception, match=r"nothing tells whether micro-batch \d+ is written .* onMissingRecord=accept"):
        copy.run()


# --- processes that commit, one held by the broker's door while another one passes


def options_of(broker: Broker, topic: str, directory: Path) -> SinkOptions:
    return sink_options(to(broker, topic, stagingLocation=str(directory)))


def staged(options: SinkOptions, query: str, batch_id: int) -> list[Staged]:
    rows = pa.RecordBatch.from_pydict({"value": [str(10 * batch_id + number) for number in range(10)]})
    return [stage(iter([rows]), Task(query, batch_id, 0, 0), options, lambda _: 1, lambda: 0)]


def committed(options: SinkOptions, query: str, batch_id: int, connect: Connect = connect_tcp) -> RelayOutcome:
    with Cluster(options.bootstrap, options.settings, connect=connect) as cluster:
        return commit(staged(options, query, batch_id), options, cluster)


@pytest.mark.parametrize(
    "api",
    COMMITTING,
    ids=lambda api: api.name,
)
def test_orphan_commit_process_is_fenced(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, api: Any
) -> None:
    """Trap: the record is read after fencing. Otherwise, a process that was held at the first request would not find
    the batch that was written meanwhile."""
    create_topic(broker, topic)
    options = options_of(broker, topic, tmp_path)
    assert committed(options, topic, 0) is RelayOutcome.WRITTEN
    with ThreadPoolExecutor(1) as pool, Trouble(str(tmp_path), api.key) as trouble:
        orphan = pool.submit(committed, options, topic, 1, trouble)
        wait_until(lambda: trouble.is_reached or orphan.done(), "it does not come so far")
        assert committed(options, topic, 1) is RelayOutcome.WRITTEN
        trouble.release()
        if api in (INIT_PRODUCER_ID, OFFSET_FETCH):
            assert orphan.result() is RelayOutcome.WRITTEN_BEFORE
        else:
            with pytest.raises(Fenced, match=f"this attempt to write for {NAME_PREFIX}{topic} is over"):
                orphan.result()
    assert committed(options, topic, 2) is RelayOutcome.WRITTEN
    assert numbers(spark, broker, topic) == list(range(30))
