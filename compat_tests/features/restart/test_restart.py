"""Acknowledged records are there after an orderly stop and after `kill -9`; ids and offsets go on where they were."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    Delivery,
    create_topic,
    flush,
    producer,
    read,
    wait_until,
    watermarks,
    with_consumer,
)
from compat_tests.features.restart.restarts import restart
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

COUNT = 500
TOPIC = "kept"
UNDER_WAY_MAX = 200


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone, which may be stopped and killed."""
    with target_broker(tmp_path) as running:
        yield running


def fill(broker: Broker, first: int) -> None:
    """Write COUNT records with acks=all, numbered from `first`."""
    delivery = Delivery()
    client = producer(broker, acks="all")
    for number in range(first, first + COUNT):
        client.produce(TOPIC, str(number).encode(), key=b"k" * (number % 50), on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    assert [message.offset() for message in delivery.messages] == list(range(first, first + COUNT))


@pytest.mark.parametrize("orderly", [True, False], ids=["SIGTERM", "SIGKILL"])
def test_an_idempotent_producer_outlives_restarts(own_broker: Broker, orderly: bool) -> None:
    """Requests are in flight at each end of the broker: each record is stored once, in order."""
    create_topic(own_broker, TOPIC)
    delivery = Delivery()
    client = producer(
        own_broker, enable_idempotence=True, batch_num_messages=1, linger_ms=0, reconnect_backoff_max_ms=200
    )

    def are_acknowledged(count: int) -> bool:
        client.poll(0)
        return len(delivery.messages) >= count

    for number in range(3 * COUNT):
        client.produce(TOPIC, str(number).encode(), on_delivery=delivery)
        if number % COUNT == 0:  # it is connected and at work
            wait_until(partial(are_acknowledged, number + 1), "nothing is acknowledged")
        elif number % COUNT == COUNT - 1:
            assert not are_acknowledged(number + 1), "all was over before the broker went"
            restart(own_broker, orderly=orderly)
    flush(client)
    assert not delivery.errors
    assert [message.offset() for message in delivery.messages] == list(range(3 * COUNT))
    values = [message.value() for message in read(own_broker, TOPIC, 0, 3 * COUNT)]
    assert values == [str(number).encode() for number in range(3 * COUNT)]


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
        assert with_consumer(own_broker, lambda consumer: watermarks(consumer, TopicPartition(TOPIC, 0))) == (0, total)
    assert str(Admin(own_broker).describe(TOPIC).topic_id) == topic_id


def test_acknowledged_records_survive_a_kill_under_load(own_broker: Broker) -> None:
    """Killed in the middle of many requests: each record is where its acknowledgement said, and the log has no gap."""
    create_topic(own_broker, TOPIC)
    acknowledged: dict[int, bytes] = {}
    for round_number in range(3):
        delivery = Delivery()
        client = producer(own_broker, acks="all", linger_ms=0, message_timeout_ms=1_000, retries=0)
        killer = threading.Timer(0.3, own_broker.kill)
        number, begun_s = 0, time.monotonic()
        while killer.ident is None or killer.is_alive():
            client.poll(0.01 if len(client) >= UNDER_WAY_MAX else 0)
            if len(client) < UNDER_WAY_MAX:
                client.produce(TOPIC, f"{round_number}/{number}".encode() * 20, on_delivery=delivery)
                number += 1
            if killer.ident is None and len(delivery.messages) > UNDER_WAY_MAX:
                killer.start()
            assert time.monotonic() - begun_s < TIMEOUT_S, "not much is acknowledged"
        client.flush(TIMEOUT_S)
        for message in delivery.messages:
            value = message.value()
            assert acknowledged.setdefault(message.offset(), value) == value, "an offset was given twice"
        own_broker.start()
    found = {message.offset(): message.value() for message in read(own_broker, TOPIC, 0, max(acknowledged) + 1)}
    assert sorted(found) == list(range(len(found)))
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged


def test_topics_stay_created_and_stay_deleted(own_broker: Broker) -> None:
    create_topic(own_broker, "stays", partitions=3)
    create_topic(own_broker, "goes")
    Admin(own_broker).delete("goes")
    restart(own_broker, orderly=False)
    listed = Admin(own_broker).topics()
    assert len(listed["stays"].partitions) == 3
    assert "goes" not in listed


def test_clients_outlive_a_restart(own_broker: Broker) -> None:
    """A producer and its queue: records sent while the broker is away are written once it is back, in order."""
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
