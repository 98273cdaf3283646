"""Versions that run together in one cluster, as they do while it is upgraded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import (
    Delivery,
    commit,
    create_topic,
    flush,
    new_consumer,
    producer,
    wait_until,
)
from compat_tests.features.cluster.newer_broker import FIELD, VALUE
from compat_tests.features.cluster.versions import TODAY, TOMORROW, cluster, member
from compat_tests.features.cluster.writer import Writer, numbers_in
from compat_tests.features.transactions.readers import committed

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.features.cluster.versions import Replaceable
    from compat_tests.harness.kafkawire_broker import Program

PARTITIONS = 6
COMMITTED = 7


def check(brokers: list[Replaceable], name: str) -> None:
    """Create a topic with each broker, write to it with the next one, and read it with the last one."""
    for at, maker in enumerate(brokers):
        writer, reader = (brokers[(at + step) % len(brokers)] for step in (1, 2))
        topic = f"{name}-by-{maker.broker_id}"
        create_topic(maker, topic, len(brokers))
        delivery = Delivery()
        client = producer(writer, acks="all")
        for partition in range(len(brokers)):
            client.produce(topic, str(partition), partition=partition, on_delivery=delivery)
        flush(client)
        assert (len(delivery.messages), delivery.errors) == (len(brokers), [])
        assert numbers_in(reader, topic, len(brokers), len(brokers)) == dict.fromkeys(range(len(brokers)), 1)


def test_brokers_are_replaced_one_after_the_other_under_a_producer(
    connect: str, tmp_path: Path, earlier: Program
) -> None:
    with cluster(tmp_path, connect, earlier, earlier, earlier) as brokers:
        create_topic(brokers[0], "written", PARTITIONS)
        commit(new_consumer(brokers[1], group_id="stays"), TopicPartition("written", 0, COMMITTED))
        with Writer(brokers[0], "written") as writer:
            for broker in brokers:
                broker.replace(TODAY)
                check(brokers, f"today-is-{broker.broker_id}")
            brokers[0].replace(earlier)
            check(brokers, "back")
        assert writer.delivery.errors == []
        written = len(writer.delivery.messages)
        assert written > 100
        for broker in brokers:
            assert numbers_in(broker, "written", written, PARTITIONS) == dict.fromkeys(range(written), 1)
            assert committed(broker, "stays", "written") == COMMITTED


def test_a_registration_keeps_unknown_fields_of_a_newer_version(connect: str, tmp_path: Path, earlier: Program) -> None:
    with cluster(tmp_path, connect, earlier, TODAY, TOMORROW) as brokers:
        newer = brokers[2]
        serving = member(connect, newer.broker_id)
        assert (serving["state"], serving[FIELD]) == ("serving", VALUE)
        check(brokers, "newer")
        newer.kill()  # the controller that fences it does not know the field
        wait_until(lambda: member(connect, newer.broker_id)["state"] == "fenced", "nobody fences it")
        assert member(connect, newer.broker_id)[FIELD] == VALUE
        newer.program = TODAY
        newer.start()
        again = member(connect, newer.broker_id)
        assert (again["state"], again[FIELD], again["epoch"]) == ("serving", VALUE, serving["epoch"] + 1)
        check(brokers, "older")
