"""Stock clients that read every partition of a topic from offset 0, until they have seen all committed records.

All other events of a client are errors: no offset may be reset.
"""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import time
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import new_consumer
from compat_tests.clients.java.commands import TOOLS
from compat_tests.features.tiering.traffic import PARTITIONS, Record
from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.requirements import need_kafka_jars

with warnings.catch_warnings():  # of how it reads its message definitions
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from compat_tests.features.tiering.traffic import Headers, ReaderRecords
    from compat_tests.harness.broker import Broker

FETCH_BYTES = 128 * 1024  # of a partition at a time: so the way through the tier is long
POLL_S = 0.2
NULL = b"(null)"
PRINTED = ("timestamp", "offset", "headers", "key", "value")
LINE = re.compile(rb"CreateTime:(\d+)\tOffset:(\d+)\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)")


def librdkafka(broker: Broker, topic: str, seen: ReaderRecords, _: Path) -> None:
    consumer = new_consumer(broker, max_partition_fetch_bytes=FETCH_BYTES, reconnect_backoff_max_ms=200)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while not seen.is_done():
            for message in consumer.consume(500, POLL_S):
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                headers = tuple(message.headers() or ())
                seen.add(partition, offset, Record(message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()


def kafka_python(broker: Broker, topic: str, seen: ReaderRecords, _: Path) -> None:
    """Read with kafka-python, and collect the sockets that it leaves to the garbage collector."""
    _kafka_python(broker, topic, seen)
    gc.collect()


def _kafka_python(broker: Broker, topic: str, seen: ReaderRecords) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    partitions = [PythonPartition(topic, partition) for partition in range(PARTITIONS)]
    try:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        while not seen.is_done():
            for partition, records in consumer.poll(round(1000 * POLL_S)).items():
                for one in records:
                    found = Record(one.timestamp, one.key, one.value, tuple(one.headers))
                    seen.add(partition.partition, one.offset, found)
    finally:
        consumer.close()


def aiokafka(broker: Broker, topic: str, seen: ReaderRecords, _: Path) -> None:
    asyncio.run(_aiokafka(broker, topic, seen))


async def _aiokafka(broker: Broker, topic: str, seen: ReaderRecords) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="none",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    partitions = [AioPartition(topic, partition) for partition in range(PARTITIONS)]
    await consumer.start()
    try:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        while not seen.is_done():
            for partition, records in (await consumer.getmany(timeout_ms=round(1000 * POLL_S))).items():
                for one in records:
                    found = Record(one.timestamp, one.key, one.value, tuple(one.headers))
                    seen.add(partition.partition, one.offset, found)
    finally:
        await consumer.stop()


def java(broker: Broker, topic: str, seen: ReaderRecords, directory: Path) -> None:
    """Read with Apache Kafka's console consumer: one for each partition, as it takes only one from an offset on."""
    need_kafka_jars()
    with ExitStack() as stack:
        tails = [_ConsoleConsumer(stack, broker, topic, partition, directory) for partition in range(PARTITIONS)]
        while not seen.is_done():
            for tail in tails:
                tail.read(seen)
            time.sleep(POLL_S)


class _ConsoleConsumer:
    """A console consumer that runs as long as `stack`, and prints to a file."""

    def __init__(self, stack: ExitStack, broker: Broker, topic: str, partition: int, directory: Path) -> None:
        self._partition = partition
        self._output = directory / f"console-consumer-{partition}"
        self._complaints = self._output.with_suffix(".log")
        written = stack.enter_context(self._output.open("wb"))
        complaints = stack.enter_context(self._complaints.open("wb"))
        self._process = subprocess.Popen(_command(broker, topic, partition), stdout=written, stderr=complaints)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        self._printed: IO[bytes] = stack.enter_context(self._output.open("rb"))
        self._rest = b""

    def read(self, seen: ReaderRecords) -> None:
        """Read the new lines of the output. A line may still be incomplete."""
        assert self._process.poll() is None, f"the console consumer left:\n{self._complaints.read_text()[-3000:]}"
        *lines, self._rest = (self._rest + self._printed.read()).split(b"\n")
        for line in lines:
            found = LINE.fullmatch(line)
            assert found is not None, f"the console consumer printed {line!r}"
            timestamp_ms, offset, headers, key, value = found.groups()
            given = Record(int(timestamp_ms), _known(key), _known(value), _headers(headers))
            seen.add(self._partition, int(offset), given)


def _command(broker: Broker, topic: str, partition: int) -> list[str]:
    shown = {f"print.{name}": "true" for name in PRINTED}
    formatter = {**shown, "null.literal": NULL.decode()}
    client = {
        "isolation.level": "read_committed",
        "auto.offset.reset": "none",
        "max.partition.fetch.bytes": str(FETCH_BYTES),
    }
    asked = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", str(partition), "--offset", "0"]
    for option, settings in (("--formatter-property", formatter), ("--command-property", client)):
        asked += [part for key, value in settings.items() for part in (option, f"{key}={value}")]
    return ["java", "-Xmx128m", *QUICK_JVM, "-cp", CLASSPATH, f"{TOOLS}.consumer.ConsoleConsumer", *asked]


def _known(printed: bytes) -> bytes | None:
    return None if printed == NULL else printed


def _headers(printed: bytes) -> Headers:
    pairs = (pair.partition(b":") for pair in printed.split(b","))
    return tuple((name.decode(), _known(value)) for name, _, value in pairs)
