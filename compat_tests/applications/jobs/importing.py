"""Topics to import, the command that imports them, and the records of both sides."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioKafkaPartition
from confluent_kafka import KafkaError, TopicPartition

from compat_tests.applications.jobs.runs import JOBS, ONE, run
from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    create_topic,
    flush,
    new_consumer,
    producer,
    wait_until,
    watermarks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat_tests.harness.broker import Broker
    from compat_tests.harness.kafkawire_broker import Kafkawire

PARTITIONS = 2
FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
IMPORT_WITHIN_S = 120.0
READ_WITHIN_S = 60.0
COMPACTED_WITHIN_S = 90.0

Record = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]  # key, value, time, headers
Found = dict[tuple[int, int], Record]  # by partition and offset


@dataclass(frozen=True)
class Edges:
    """The start and end of a partition."""

    start: int
    end: int


def asked(source: Broker, target: Broker, topic: str, *more: str) -> list[str]:
    """The arguments of the job. A target without HTTP gets a URL without a listener."""
    url = getattr(target, "http_url", "http://127.0.0.1:9")
    brokers = "--from-bootstrap", source.bootstrap, "-b", target.bootstrap, "--to-http", url
    return ["import", *brokers, "--topic", topic, *more]


def words(source: Broker, target: Broker, topic: str, *more: str) -> list[str]:
    """The arguments of the command line."""
    return [sys.executable, *JOBS, *asked(source, target, topic, *more)]


def imported(source: Broker, target: Broker, topic: str, *more: str, code: int = 0) -> dict[str, Any]:
    """The report of an import that has ended with that exit code; in a single process, unless it is given workers."""
    done = run(*asked(source, target, topic, *(() if "--workers" in more else ONE), *more))
    assert done.code == code, done
    return done.report or {"reason": done.stderr.splitlines()[-1]}


def fill(broker: Broker, topic: str, transactions: int = 12, records: int = 40, value_bytes: int = 20) -> None:
    """Write transactions in all codecs, every third one aborted, and records without a transaction. The last records
    are without a transaction too."""
    create_topic(broker, topic, PARTITIONS, {"max.message.bytes": "2000000", "retention.ms": "-1"})
    rng, number = Random(0), 0
    for codec in CODECS:
        client = producer(broker, transactional_id=f"{topic}-{codec}", compression_type=codec)
        client.init_transactions(TIMEOUT_S)
        for transaction in range(transactions // len(CODECS) + 1):
            client.begin_transaction()
            for _ in range(records):
                _send(client, topic, number, rng.randbytes(value_bytes))
                number += 1
            flush(client)
            if transaction % 3 == 1:
                client.abort_transaction(TIMEOUT_S)
            else:
                client.commit_transaction(TIMEOUT_S)
    plain = producer(broker, compression_type="zstd")
    for _ in range(records):
        _send(plain, topic, number, rng.randbytes(value_bytes))
        number += 1
    flush(plain)
    last = producer(broker, transactional_id=f"{topic}-last")
    last.init_transactions(TIMEOUT_S)
    last.begin_transaction()
    for partition in range(PARTITIONS):
        last.produce(topic, b"never", partition=partition)
    flush(last)
    last.abort_transaction(TIMEOUT_S)
    wait_until(lambda: edges(broker, topic) == edges(broker, topic, "read_uncommitted"), f"{topic} has no last marker")


def _send(client: Any, topic: str, number: int, value: bytes) -> None:
    """Produce records; some are tombstones, some have no key, some have headers."""
    client.produce(
        topic,
        None if number % 11 == 0 else value,
        key=None if number % 7 == 0 else b"key %d" % (number % 13),
        headers=[] if number % 3 else [("number", b"%d" % number), ("nothing", None)],
        partition=number % PARTITIONS,
        timestamp=FIRST_MS + number,
    )


def fill_compacted(broker: Broker, topic: str) -> None:
    """Write some keys again and again, the newest records of some are tombstones. Returns when compaction has made
    gaps, within batches too."""
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "500",
    }
    create_topic(broker, topic, PARTITIONS, config)
    client, rng = producer(broker, compression_type="lz4", batch_num_messages=20), Random(1)
    sent, keys = 4000, 100
    for number in range(sent):
        value = None if number > sent - 30 and number % 3 == 0 else rng.randbytes(900)
        client.produce(topic, value, key=b"%d" % rng.randrange(keys), partition=number % PARTITIONS)
        client.poll(0)
    flush(client)
    for partition in range(PARTITIONS):  # the active segment stays as it is
        for _ in range(2):
            client.produce(topic, rng.randbytes(900_000), key=b"last", partition=partition)
            flush(client)
    left = PARTITIONS * (keys + 2)  # so that no more goes while a test compares
    wait_until(lambda: len(committed(broker, topic)) <= left, f"{topic} is not compacted", COMPACTED_WITHIN_S)


def edges(broker: Broker, topic: str, isolation_level: str = "read_committed") -> list[Edges]:
    """The start and end of the partitions, for a reader of that isolation level."""
    consumer = new_consumer(broker, isolation_level=isolation_level)
    try:
        return [Edges(*watermarks(consumer, TopicPartition(topic, at))) for at in range(PARTITIONS)]
    finally:
        consumer.close()


def committed(broker: Broker, topic: str, partitions: int = PARTITIONS) -> Found:
    """The committed records as confluent-kafka reads them, from the beginning to the end."""
    consumer = new_consumer(broker, isolation_level="read_committed", enable_partition_eof=True)
    found: Found = {}
    try:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
        consumer.assign([TopicPartition(topic, at, -2) for at in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic}: nothing comes behind {len(found)} records"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            _, time_ms = message.timestamp()
            found[message.partition(), message.offset()] = (
                message.key(), message.value(), time_ms, tuple(message.headers() or ()),
            )  # fmt: skip
        return found
    finally:
        consumer.close()


async def read_by_aiokafka(broker: Broker, topic: str, ends: Sequence[Edges]) -> Found:
    """The same records, read by a client that is written in Python."""
    places = [AioKafkaPartition(topic, at) for at in range(PARTITIONS)]
    found: Found = {}
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        while [place for place in places if await consumer.position(place) < ends[place.partition].end]:
            for place, records in (await consumer.getmany(timeout_ms=1000)).items():
                for one in records:
                    found[place.partition, one.offset] = one.key, one.value, one.timestamp, tuple(one.headers)
    return found


def check_same(source: Broker, target: Kafkawire, topic: str) -> Found:
    """Check that each offset has the same record for two clients, and that both sides have the same start and end.
    Returns the records."""
    wanted, ends = committed(source, topic), edges(source, topic)
    assert committed(target, topic) == wanted
    found = edges(target, topic)
    assert [one.end for one in found] == [one.end for one in ends]
    firsts = [min((at for part, at in wanted if part == number), default=0) for number in range(PARTITIONS)]
    for ours, theirs, first in zip(found, ends, firsts, strict=True):
        assert theirs.start <= ours.start <= first
    for broker, its in ((source, ends), (target, found)):
        assert asyncio.run(asyncio.wait_for(read_by_aiokafka(broker, topic, its), READ_WITHIN_S)) == wanted
    return wanted
