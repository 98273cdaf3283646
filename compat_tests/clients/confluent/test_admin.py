"""confluent-kafka's AdminClient: topics come and go, and refusals say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from compat_tests.clients.confluent.clients import Admin, create_topic, flush, producer, read, wait_until_gone
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker


def create_error(broker: Broker, new_topic: NewTopic) -> KafkaError:
    """The error that creating a topic ends in."""
    with pytest.raises(KafkaException) as failure:
        Admin(broker).create(new_topic)
    return failure.value.args[0]


def test_create_list_and_delete(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=3)
    listed = Admin(broker).topics()[topic]
    assert sorted(listed.partitions) == [0, 1, 2]
    assert all(row.leader == row.replicas[0] == row.isrs[0] for row in listed.partitions.values())
    Admin(broker).delete(topic)
    wait_until_gone(broker, topic)


def test_a_topic_made_again_is_empty(broker: Broker, topic: str) -> None:
    """A topic that is created again has another id, and none of the old records."""
    create_topic(broker, topic)
    old_id = str(Admin(broker).describe(topic).topic_id)
    client = producer(broker)
    client.produce(topic, b"old")
    flush(client)
    Admin(broker).delete(topic)
    wait_until_gone(broker, topic)
    create_topic(broker, topic)
    assert str(Admin(broker).describe(topic).topic_id) != old_id
    client = producer(broker)
    client.produce(topic, b"new")
    flush(client)
    assert [message.value() for message in read(broker, topic, 0, 1)] == [b"new"]


def test_delete_records(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    client = producer(broker)
    for number in range(10):
        client.produce(topic, b"%d" % number)
    flush(client)
    assert Admin(broker).delete_records(topic, 4) == 4
    assert [message.value() for message in read(broker, topic, 4, 2)] == [b"4", b"5"]
    with pytest.raises(KafkaException) as failure:
        Admin(broker).delete_records(topic, 11)
    assert failure.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    assert Admin(broker).delete_records(topic, -1) == 10


def test_describe_topic_and_cluster(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=2)
    described = Admin(broker).describe(topic)
    assert (described.name, described.is_internal, len(described.partitions)) == (topic, False, 2)
    cluster = Admin(broker).cluster()
    assert cluster.cluster_id
    found = {node.id: (node.host, node.port) for node in cluster.nodes}
    assert found == {number: ("127.0.0.1", one.port) for number, one in broker.brokers.items()}
    assert cluster.controller.id in found


def test_duplicate_is_refused(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    error = create_error(broker, NewTopic(topic, 1, 1))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert topic in error.str()


@pytest.mark.parametrize(
    ("name", "partitions", "replication_factor", "config", "code"),
    [
        ("bad name", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("..", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("too-many-replicas", 1, 4, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-key", 1, 1, {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
        ("bad-value", 1, 1, {"max.message.bytes": "many"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_refusals(
    broker: Broker, name: str, partitions: int, replication_factor: int, config: dict[str, str], code: int
) -> None:
    error = create_error(broker, NewTopic(name, partitions, replication_factor, config=config))
    assert error.code() == code
    assert error.str()
    assert name not in Admin(broker).topics()


def test_validate_only_creates_nothing(broker: Broker, topic: str) -> None:
    Admin(broker).create(NewTopic(topic, 1, 1), validate_only=True)
    assert topic not in Admin(broker).topics()


def test_deleting_a_missing_topic_is_refused_with_unknown_topic(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaException) as failure:
        Admin(broker).delete(topic)
    assert failure.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topics_are_created_on_first_use(broker: Broker, topic: str) -> None:
    client = producer(broker)
    client.produce(topic, b"first")
    flush(client)
    assert [message.value() for message in read(broker, topic, 0, 1)] == [b"first"]


def test_defaults_of_the_broker_apply(tmp_path: Path, topic: str) -> None:
    """num.partitions counts for automatic creation, and for a topic created without a number."""
    with target_broker(tmp_path, {"num.partitions": "3"}) as broker:
        client = producer(broker)
        client.produce(topic, b"first")
        flush(client)
        create_topic(broker, "by-default", partitions=-1)
        listed = Admin(broker).topics()
        assert len(listed[topic].partitions) == len(listed["by-default"].partitions) == 3


def test_no_creation_on_first_use_when_switched_off(tmp_path: Path, topic: str) -> None:
    with target_broker(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        client = producer(broker, message_timeout_ms=3_000)
        errors: list[object] = []
        client.produce(topic, b"first", on_delivery=lambda error, _: errors.append(error.code()))
        flush(client)
        assert errors[0] in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT)
        assert topic not in Admin(broker).topics()
