"""What was acknowledged is there after an orderly stop and after `kill -9`; ids and offsets go on where they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.confluent.clients import (
    TIMEOUT_S,
    Admin,
    Delivery,
    create_topic,
    flush,
    producer,
    read,
    with_consumer,
)
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

COUNT = 500
TOPIC = "kept"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone, which may be stopped and killed."""
    with target_broker(tmp_path) as running:
        yield running


def restart(broker: Broker, *, orderly: bool) -> None:
    if orderly:
        code = broker.stop()
        # A JVM that leaves on SIGTERM reports it as 128 + 15.
        assert code in (0, 143)
    else:
        broker.kill()
    broker.start()


def fill(broker: Broker, first: int) -> None:
    """COUNT records acknowledged by all, numbered from `first`."""
    delivery = Delivery()
    client = producer(broker, acks="all")
    for number in range(first, first + COUNT):
        client.produce(TOPIC, str(number).encode(), key=b"k" * (number % 50), on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    assert [message.offset() for message in delivery.messages] == list(range(first, first + COUNT))


@pytest.mark.parametrize("orderly", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_acknowledged_records_survive(own_broker: Broker, orderly: bool) -> None:
    create_topic(own_broker, TOPIC, config={"max.message.bytes": "2000000"})
    topic_id = str(Admin(own_broker).describe(TOPIC).topic_id)
    for round_number in range(3):
        fill(own_broker, round_number * COUNT)
        restart(own_broker, orderly=orderly)
        total = (round_number + 1) * COUNT
        values = [message.value() for message in read(own_broker, TOPIC, 0, total)]
        assert values == [str(number).encode() for number in range(total)]
        assert with_consumer(
            own_broker, lambda consumer: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=TIMEOUT_S)
        ) == (0, (round_number + 1) * COUNT)
    assert str(Admin(own_broker).describe(TOPIC).topic_id) == topic_id


def test_topics_stay_created_and_stay_deleted(own_broker: Broker) -> None:
    create_topic(own_broker, "stays", partitions=3)
    create_topic(own_broker, "goes")
    Admin(own_broker).delete("goes")
    restart(own_broker, orderly=False)
    listed = Admin(own_broker).topics()
    assert len(listed["stays"].partitions) == 3
    assert "goes" not in listed


def test_clients_outlive_a_restart(own_broker: Broker) -> None:
    """One producer and its queue: what is sent while the broker is away arrives once it is back, in order."""
    create_topic(own_broker, TOPIC)
    delivery = Delivery()
    client = producer(own_broker, max_in_flight_requests_per_connection=1)
    client.produce(TOPIC, b"before", on_delivery=delivery)
    flush(client)
    own_broker.stop()
    client.produce(TOPIC, b"while away", on_delivery=delivery)
    client.poll(0)
    own_broker.start()
    client.produce(TOPIC, b"after", on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    assert [message.value() for message in read(own_broker, TOPIC, 0, 3)] == [b"before", b"while away", b"after"]
