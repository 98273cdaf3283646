"""MirrorMaker 2 between Apache Kafka and the broker under test, both ways: records, topics as they change, groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    commit,
    create_topic,
    describe,
    flush,
    grow_topic,
    new_consumer,
    producer,
    read,
    wait_until,
    watermarks,
    with_consumer,
)
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.requirements import need_connect_jars
from compat_tests.harness.tools import running_connect

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

PATIENCE_S = 240.0  # MirrorMaker alone takes a minute on two slow cores, and has company in the suite
PARTITIONS = 2
RECORDS = 10
FIRST_MS = 1_700_000_000_000
GROUP = "mirrored-readers"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
SETTINGS = {
    "clusters": "kafka, ours",
    "groups": GROUP,
    "sync.group.offsets.enabled": "true",
    "offset.lag.max": "0",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
}
IN_TRANSACTIONS = {
    "kafka.exactly.once.source.support": "enabled",
    "ours.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
    "kafka.consumer.isolation.level": "read_committed",
    "ours.consumer.isolation.level": "read_committed",
}


class Flow:
    """A topic on one side, its mirror on the other, and a group that reads both."""

    def __init__(self, source: Broker, target: Broker, topic: str, mirror: str) -> None:
        self._source = source
        self._target = target
        self._topic = topic
        self._mirror = mirror

    def create(self) -> None:
        create_topic(self._source, self._topic, PARTITIONS, config={"retention.ms": "604700000"})

    def write(self, first: int) -> None:
        client = producer(self._source)
        for partition in range(PARTITIONS):
            for number in range(first, first + RECORDS):
                value, headers = (None, None) if number % 5 == 4 else (f"value {number}", {"number": str(number)})
                at_ms = FIRST_MS + 1000 * number
                client.produce(self._topic, value, f"key {number}", partition, headers=headers, timestamp=at_ms)
        flush(client)

    def is_mirrored(self, count: int) -> None:
        """Wait until each partition has `count` records, the same on both sides."""
        for partition in range(PARTITIONS):
            wait_until(partial(self._has, partition, count), "not all is mirrored", PATIENCE_S)
            sides = ((self._source, self._topic), (self._target, self._mirror))
            written, copied = (
                [
                    (one.offset(), one.key(), one.value(), one.headers(), one.timestamp())
                    for one in read(side, topic, 0, count, partition)
                ]
                for side, topic in sides
            )
            assert len(written) == count
            assert copied == written

    def _has(self, partition: int, count: int) -> bool:
        where = TopicPartition(self._mirror, partition)
        _, end = with_consumer(self._target, lambda consumer: watermarks(consumer, where))
        return int(end) >= count

    def wait_for_mirror(self) -> None:
        wait_until(lambda: self._mirror in Admin(self._target).topics(), "the topic is not mirrored", PATIENCE_S)

    def partitions(self) -> int:
        found = Admin(self._target).topics().get(self._mirror)
        return 0 if found is None else len(found.partitions)

    def grow(self) -> None:
        grow_topic(self._source, self._topic, PARTITIONS + 1)
        wait_until(lambda: self.partitions() == PARTITIONS + 1, "the mirror does not grow", PATIENCE_S)

    def retention_ms(self) -> str:
        client = AdminClient({"bootstrap.servers": self._target.bootstrap, "log_level": 3})
        value: str = describe(client, ConfigResource(ResourceType.TOPIC, self._mirror))["retention.ms"].value
        return value

    def change_retention(self) -> None:
        assert self.retention_ms() == "604700000"
        Admin(self._source).alter_config(self._topic, "retention.ms", "604600000")
        wait_until(lambda: self.retention_ms() == "604600000", "a config that changed is not mirrored", PATIENCE_S)

    def read_as_a_group(self) -> None:
        """Commit all records of the source as a group."""
        consumer = new_consumer(self._source, group_id=GROUP)
        commit(consumer, *(TopicPartition(self._topic, partition, RECORDS) for partition in range(PARTITIONS)))
        consumer.close()

    def group_is_mirrored(self) -> None:
        consumer = new_consumer(self._target, group_id=GROUP)
        mirrored = [TopicPartition(self._mirror, partition) for partition in range(PARTITIONS)]

        def is_done() -> bool:
            return [one.offset for one in consumer.committed(mirrored, TIMEOUT_S)] == [RECORDS] * PARTITIONS

        wait_until(is_done, "the group's offsets are not mirrored", PATIENCE_S)
        consumer.close()

    def group_goes_on(self) -> None:
        """The group goes on in the target, with the records that it has not read at the source."""
        consumer = new_consumer(self._target, group_id=GROUP, auto_offset_reset="earliest")
        consumer.subscribe([self._mirror])
        found = consumer.consume(PARTITIONS * RECORDS, TIMEOUT_S)
        consumer.close()
        assert sorted((one.partition(), one.offset()) for one in found) == [
            (partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS, 2 * RECORDS)
        ]


def write_settings(
    directory: Path, kafka: Broker, ours: Broker, from_kafka: str, from_here: str, more: dict[str, str]
) -> Path:
    """MirrorMaker's properties, with a topic for each way."""
    settings = {
        **SETTINGS,
        "kafka.bootstrap.servers": kafka.bootstrap,
        "ours.bootstrap.servers": ours.bootstrap,
        "kafka->ours.enabled": "true",
        "kafka->ours.topics": from_kafka,
        "ours->kafka.enabled": "true",
        "ours->kafka.topics": from_here,
        **more,
    }
    path = directory / "mirror.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class TransactionalFlow:
    """A topic written in transactions, every other of them aborted, and its mirror, which is written in transactions
    too."""

    def __init__(self, source: Broker, target: Broker, topic: str, mirror: str) -> None:
        self._target = target
        self._topic = topic
        self._mirror = mirror
        create_topic(source, topic)
        self._producer = producer(source, transactional_id=topic)
        self._producer.init_transactions(TIMEOUT_S)
        self._written = 0

    def write(self) -> None:
        for is_commit in (True, False) * RECORDS:
            self._producer.begin_transaction()
            self._producer.produce(self._topic, str(self._written) if is_commit else "never", partition=0)
            flush(self._producer)
            if is_commit:
                self._producer.commit_transaction(TIMEOUT_S)
                self._written += 1
            else:
                self._producer.abort_transaction(TIMEOUT_S)

    def is_mirrored(self) -> None:
        """Wait until each committed record is mirrored exactly once: a record too many would be read as well."""
        wait_until(lambda: self._mirror in Admin(self._target).topics(), "the topic is not mirrored", PATIENCE_S)
        wait_until(lambda: len(self._committed()) == self._written, "not all is mirrored", PATIENCE_S)
        assert self._committed() == [b"%d" % number for number in range(self._written)]

    def _committed(self) -> list[bytes | None]:
        found = read(self._target, self._mirror, 0, self._written, isolation_level="read_committed")
        return [one.value() for one in found]


def test_in_transactions(broker: Broker, tmp_path: Path) -> None:
    """Mirror with exactly.once.source.support, and kill MirrorMaker in between."""
    need_connect_jars()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        flows = (
            TransactionalFlow(kafka, broker, "once-from-kafka", "kafka.once-from-kafka"),
            TransactionalFlow(broker, kafka, "once-from-here", "ours.once-from-here"),
        )
        settings = write_settings(tmp_path, kafka, broker, "once-from-kafka", "once-from-here", IN_TRANSACTIONS)
        for is_last in (False, True):
            for flow in flows:
                flow.write()
            with running_connect(tmp_path / "mirror.log", MIRROR_MAKER, str(settings)) as process:
                for flow in flows:
                    flow.is_mirrored()
                if not is_last:
                    process.kill()


def test_both_ways(broker: Broker, tmp_path: Path) -> None:
    need_connect_jars()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        flows = (
            Flow(kafka, broker, "here-from-kafka", "kafka.here-from-kafka"),
            Flow(broker, kafka, "from-here-to-kafka", "ours.from-here-to-kafka"),
        )
        for flow in flows:
            flow.create()
            flow.write(0)
            flow.read_as_a_group()
        settings = write_settings(tmp_path, kafka, broker, "here-from-kafka", "from-here-to-kafka", {})
        with running_connect(tmp_path / "mirror.log", MIRROR_MAKER, str(settings)):
            for flow in flows:
                flow.wait_for_mirror()
            for flow in flows:
                flow.is_mirrored(RECORDS)
                flow.group_is_mirrored()
                flow.change_retention()
                flow.grow()
                flow.write(RECORDS)
                flow.is_mirrored(2 * RECORDS)
        for flow in flows:
            flow.group_goes_on()
