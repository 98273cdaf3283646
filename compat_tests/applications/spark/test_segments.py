"""Sealed segments, read from their store or files: the same rows as by Spark's own source, without a Fetch for them.

`test_tiered.py` does the same while segments are sealed, copied, compacted and deleted, and brokers are restarted.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import FIRST_MS, OURS, STOCK, Connector, Output, fetches, run_to_end
from compat_tests.applications.spark.test_kafkawire_source import CODECS, rows_in_order
from compat_tests.applications.spark.test_transactions import COMMITTED, Writer
from compat_tests.clients.confluent.clients import create_topic, flush, producer, wait_until
from compat_tests.features.tiering.brokers import TieredKafkawire
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SMALL = {"segment.bytes": str(1 << 20)}
CLEANED_MAX = 10  # how often a cleaner may come between two looks at the same topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkawire]:
    overrides = {"transaction.state.log.num.partitions": "1", "log.cleaner.backoff.ms": "200"}
    with Kafkawire(tmp_path_factory.mktemp("segments"), overrides) as running:
        yield running


@pytest.fixture
def stock(spark: SparkSession) -> Connector:
    return Connector(spark, STOCK)


@pytest.fixture
def ours(spark: SparkSession) -> Connector:
    return Connector(spark, OURS, goes_past_brokers=True)


def fill(broker: Kafkawire, topic: str, partitions: int, megabytes: int) -> None:
    """Write in every codec, in batches of any size; the values compress little."""
    choice = random.Random(11)
    for codec in CODECS:
        client = producer(broker, compression_type=codec, batch_num_messages=choice.choice([1, 50, 5000]))
        for number in range(megabytes * 1000 // len(CODECS)):
            key = b"k%d" % (number % 50)
            headers = [("h", b"%d" % number)] if number % 3 == 0 else None
            time_ms = FIRST_MS + choice.randrange(1000)
            client.produce(
                topic, choice.randbytes(1000), key, partition=number % partitions, headers=headers, timestamp=time_ms
            )
        flush(client)


def test_the_same_rows_without_a_fetch(stock: Connector, ours: Connector, broker: Kafkawire, topic: str) -> None:
    create_topic(broker, topic, partitions=2, config=SMALL)
    fill(broker, topic, 2, 10)
    options = {"subscribe": topic, "includeHeaders": "true"}
    expected = rows_in_order(stock.reader(broker, **options).load())
    assert rows_in_order(ours.reader(broker, **options).load()) == expected
    frame = ours.reader(broker, **options, **{"segments.splitBytes": str(600_000)}).load()
    assert frame.rdd.getNumPartitions() > 8
    assert rows_in_order(frame) == expected
    sealed = {str(number): len(rows) // 2 for number, rows in enumerate(expected.values())}
    ends = str({topic: sealed}).replace("'", '"')
    before = fetches(broker)
    assert before > 0
    half = rows_in_order(ours.reader(broker, **options, endingOffsets=ends).load())
    assert {place: len(rows) for place, rows in half.items()} == {
        (topic, int(number)): count for number, count in sealed.items()
    }
    assert all(rows == expected[place][: len(rows)] for place, rows in half.items())
    assert fetches(broker) == before


@pytest.mark.parametrize("isolation", [{}, COMMITTED], ids=["uncommitted", "committed"])
def test_the_same_rows_of_transactions(
    stock: Connector, ours: Connector, broker: Kafkawire, topic: str, isolation: dict[str, str]
) -> None:
    create_topic(broker, topic, partitions=2, config={"segment.ms": "100", "segment.bytes": str(1 << 20)})
    writer = Writer(broker, topic)
    for number in range(4):
        writer.everything(number)
    options = {"subscribe": topic, **isolation}
    expected = rows_in_order(stock.reader(broker, **options, includeHeaders="true").load())
    found = ours.reader(broker, **options, includeHeaders="true").load()
    assert rows_in_order(found) == expected


def test_a_stream_catches_up_from_files_and_goes_on_by_fetch(
    ours: Connector, broker: Kafkawire, topic: str, output: Output
) -> None:
    create_topic(broker, topic, config=SMALL)
    client = producer(broker)
    count = 5000

    def send(first: int) -> None:
        for number in range(first, first + count):
            client.produce(topic, b"%d" % number, headers=[("pad", bytes(1000))], timestamp=FIRST_MS)
        flush(client)

    send(0)
    stream = ours.stream(broker, subscribe=topic, maxOffsetsPerTrigger="1700").load()
    run_to_end(output.writer(stream))
    assert output.numbers() == list(range(count))
    send(count)
    run_to_end(output.writer(stream))
    assert output.numbers() == list(range(2 * count))


def test_compacted_meanwhile(stock: Connector, ours: Connector, broker: Kafkawire, topic: str) -> None:
    """Planned segments may be gone when they are read: the newest record of each key has to be there."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL}
    create_topic(broker, topic, config=config)
    for _ in range(3):
        fill(broker, topic, 1, 3)
        [found] = rows_in_order(ours.reader(broker, subscribe=topic, includeHeaders="true").load()).values()
        offsets = [row[4] for row in found]
        assert offsets == sorted(set(offsets))  # type: ignore[type-var]

    def is_compacted() -> bool:
        [rows] = rows_in_order(stock.reader(broker, subscribe=topic, includeHeaders="true").load()).values()
        return len(rows) < 3000

    wait_until(is_compacted, "it is not compacted", 60)
    options = {"subscribe": topic, "includeHeaders": "true"}
    expected = rows_in_order(stock.reader(broker, **options).load())
    for _ in range(CLEANED_MAX):
        before, here = expected, rows_in_order(ours.reader(broker, **options).load())
        expected = rows_in_order(stock.reader(broker, **options).load())
        if expected == before:  # compaction removed no more meanwhile
            break
    assert here == expected


def test_segments_in_the_remote_tier_are_read_without_a_broker(
    spark: SparkSession, stock: Connector, topic: str, tmp_path: Path
) -> None:
    with TieredKafkawire(tmp_path) as tiered:
        config = {"remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1", **SMALL}
        create_topic(tiered, topic, partitions=2, config=config)
        fill(tiered, topic, 2, 8)
        options = {"subscribe": topic, "includeHeaders": "true"}
        expected = rows_in_order(stock.reader(tiered, **options).load())
        reader = spark.read.format(OURS).options(**options, segments=f"file://{tmp_path}/tier")

        def rows() -> dict[tuple[str, int], list[tuple[object, ...]]]:
            return rows_in_order(reader.load())

        # Of either partition's 4000 the active segment keeps as many as fit into it: of the other 3000 most are copied.
        wait_until(lambda: sum(map(len, rows().values())) > 5000, "nothing is copied", 180)
    found = rows()
    assert set(found) == set(expected)
    assert all(0 < len(some) <= len(expected[place]) for place, some in found.items())
    assert all(some == expected[place][: len(some)] for place, some in found.items())
