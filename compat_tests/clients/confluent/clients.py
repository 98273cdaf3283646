"""confluent-kafka clients as these tests need them: no group, no waiting for batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    DescribeClusterResult,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from compat_tests.harness.whereabouts import leaders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 20.0
ANSWERED_WITHIN_S = 60.0  # by a coordinator that loads, or that is still to be chosen, on two busy cores
# Errors of a coordinator that is loading, or that another broker may have replaced: followers are late now and then.
COORDINATED_ELSEWHERE = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
# Errors of a broker that does not lead a partition, or has just begun to lead it.
LED_ELSEWHERE = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
)
T = TypeVar("T")


def producer(broker: Broker, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 5}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


class Admin:
    """An AdminClient with blocking methods. librdkafka loses the answer if the client is freed before its future is
    done."""

    def __init__(self, broker: Broker, timeout_s: float = TIMEOUT_S) -> None:
        self._client = AdminClient(
            {"bootstrap.servers": broker.bootstrap, "log_level": 3, "socket.timeout.ms": round(timeout_s * 1000)}
        )
        self._timeout_s = timeout_s

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        asked = self._client.create_topics([topic], validate_only=validate_only, request_timeout=self._timeout_s)
        asked[topic.topic].result(self._timeout_s)

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic], request_timeout=self._timeout_s)[topic].result(self._timeout_s)

    def alter_config(self, topic: str, key: str, value: str | None) -> None:
        """Set a config of a topic; None: reset it to the default."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        asked = ConfigResource(ResourceType.TOPIC, topic)
        alter(self._client, asked, {key: (operation, value)}, self._timeout_s)

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions to `partitions` in all."""
        asked = NewPartitions(topic, partitions)
        self._client.create_partitions([asked], request_timeout=self._timeout_s)[topic].result(self._timeout_s)

    def delete_records(self, topic: str, before_offset: int) -> int:
        """Delete records of partition 0. Returns its low watermark afterwards."""
        asked = TopicPartition(topic, 0, before_offset)

        def ask() -> int:
            return int(self._client.delete_records([asked])[asked].result(TIMEOUT_S).low_watermark)

        return insist(ask, *LED_ELSEWHERE)

    def topics(self) -> dict[str, TopicMetadata]:
        found: dict[str, TopicMetadata] = self._client.list_topics(timeout=TIMEOUT_S).topics
        return found

    def isr_sizes(self, topic: str) -> set[int]:
        """The numbers of in-sync replicas of its partitions; empty while a broker does not know the topic."""
        found = self.topics().get(topic)
        return set() if found is None else {len(one.isrs) for one in found.partitions.values()}

    def describe(self, topic: str) -> TopicDescription:
        return self._client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)

    def cluster(self) -> DescribeClusterResult:
        return self._client.describe_cluster().result(TIMEOUT_S)

    def offset(self, partition: TopicPartition, specification: OffsetSpec) -> int:
        def ask() -> int:
            return int(self._client.list_offsets({partition: specification})[partition].result(TIMEOUT_S).offset)

        return insist(ask, *LED_ELSEWHERE)


def alter(
    client: AdminClient,
    asked: ConfigResource,
    changes: Mapping[str, tuple[AlterConfigOpType, str | None]],
    timeout_s: float = TIMEOUT_S,
) -> None:
    for key, (operation, value) in changes.items():
        asked.add_incremental_config(ConfigEntry(key, value, incremental_operation=operation))
    (done,) = client.incremental_alter_configs([asked]).values()
    done.result(timeout_s)


def describe(client: AdminClient, asked: ConfigResource) -> dict[str, ConfigEntry]:
    """The configs of one resource, by key."""
    (found,) = client.describe_configs([asked]).values()
    entries: dict[str, ConfigEntry] = found.result(TIMEOUT_S)
    return entries


def create_topic(
    broker: Broker, topic: str, partitions: int = 1, config: dict[str, str] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic and wait until each broker knows it: the reply comes earlier."""
    Admin(broker).create(NewTopic(topic, partitions, replicas, config=config or {}))
    wait_until_known(broker, topic, max(partitions, 1))


def grow_topic(broker: Broker, topic: str, partitions: int) -> None:
    """Raise the number of partitions to `partitions` in all, and wait until each broker knows them."""
    Admin(broker).grow(topic, partitions)
    wait_until_known(broker, topic, partitions)


def wait_until_known(broker: Broker, topic: str, partitions: int = 1) -> None:
    """Wait until each broker knows so many partitions of the topic."""
    ports = [one.port for one in broker.brokers.values()]
    wait_until(lambda: all(len(leaders(port, topic)) >= partitions for port in ports), f"{topic} is not known")


def wait_until_whole(
    broker: Broker, topic: str, complaint: str = "not all are in sync", timeout_s: float = TIMEOUT_S
) -> None:
    """Wait until three replicas of each partition are in sync."""
    wait_until(lambda: Admin(broker).isr_sizes(topic) == {3}, f"{topic}: {complaint}", timeout_s)


def wait_until_gone(broker: Broker, topic: str) -> None:
    """Wait until no broker lists the topic: the answer to a deletion comes earlier, as Kafka promises no more."""
    ports = [one.port for one in broker.brokers.values()]
    wait_until(lambda: not any(leaders(port, topic) for port in ports), f"{topic} is still known")


def wait_until(condition: Callable[[], bool], complaint: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)


class Delivery:
    """Collects delivery reports: messages of stored records, and errors of the others."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.errors: list[Any] = []

    def __call__(self, error: object, message: Message) -> None:
        if error is None:
            self.messages.append(message)
        else:
            self.errors.append(error)


def flush(client: Producer) -> None:
    assert client.flush(TIMEOUT_S) == 0, "messages are still queued"


def read(broker: Broker, topic: str, offset: int, count: int, partition: int = 0, **settings: object) -> list[Message]:
    """`count` messages of one partition from an offset on, by assign(); fewer if they do not come in time."""
    consumer = new_consumer(broker, **settings)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[Message] = []
        while len(found) < count:
            batch = consumer.consume(count - len(found), TIMEOUT_S)
            if not batch:
                break
            found.extend(batch)
        errors = [message.error() for message in found if message.error() is not None]
        assert not errors, errors
        return found
    finally:
        consumer.close()


def new_consumer(broker: Broker, **settings: object) -> Consumer:
    """A consumer that commits nothing; librdkafka needs a group id even so."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "compat",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def with_consumer(broker: Broker, use: Callable[[Consumer], T]) -> T:
    """Use a consumer, close it, and return the result of `use`."""
    consumer = new_consumer(broker)
    try:
        return use(consumer)
    finally:
        consumer.close()


def insist(ask: Callable[[], T], *passing: int) -> T:
    """Ask again while the error is one of `passing`, and return the answer. Java's clients retry these errors,
    librdkafka does not. Raises KafkaException for other errors, and after `ANSWERED_WITHIN_S`."""
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def commit(consumer: Consumer, *offsets: TopicPartition) -> None:
    """Commit offsets, and retry: while the topic of offsets is new, brokers refuse."""
    insist(lambda: consumer.commit(offsets=list(offsets), asynchronous=False), *COORDINATED_ELSEWHERE)


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition and the end that the consumer may read up to, as soon as a broker leads it."""

    def ask() -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
        return low, high

    return insist(ask, *LED_ELSEWHERE)


def subscribe(consumer: Consumer, *topics: str) -> None:
    """Subscribe with an eager assignment, from the committed offsets on, or from the beginning. librdkafka does not ask
    again for offsets if the coordinator has moved (its issue 5586): the application gets an error and no records."""

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        committed = insist(lambda: consumer.committed(partitions, timeout=TIMEOUT_S), *COORDINATED_ELSEWHERE)
        for one in committed:
            one.offset = one.offset if one.offset >= 0 else OFFSET_BEGINNING
        consumer.assign(committed)

    consumer.subscribe([*topics], on_assign=on_assign)
