"""kaskade, a console for terminals: its screens of a topic, its groups and its records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    commit,
    create_topic,
    flush,
    new_consumer,
    producer,
    subscribe,
)
from compat_tests.harness.requirements import need_kaskade
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

    from compat_tests.harness.broker import Broker

DRIVER = Path(__file__).with_name("kaskade_driver.py")
FIRST_MS = 1_700_000_000_000
KEYS_OF_KAFKA = 32  # of a topic, that it can show


@pytest.fixture
def reader(broker: Broker, topic: str) -> Iterator[Consumer]:
    """The one member of a group, which has read three records of the first partition and has committed two."""
    create_topic(broker, topic, partitions=2, config={"retention.ms": "604700000"})
    client = producer(broker)
    for number in range(3):
        client.produce(topic, f"value {number}", f"key {number}", 0, timestamp=FIRST_MS + number, headers={"h": "1"})
    flush(client)
    consumer = new_consumer(broker, group_id=f"group-of-{topic}", client_id="reader", auto_offset_reset="earliest")
    subscribe(consumer, topic)
    assert [message.offset() for message in consumer.consume(3, TIMEOUT_S)] == [0, 1, 2]
    commit(consumer, TopicPartition(topic, 0, 2))
    yield consumer
    consumer.close()


def test_topics_groups_configs_and_records(broker: Broker, topic: str, reader: Consumer, tmp_path: Path) -> None:
    log = tmp_path / "kaskade.log"
    arguments = [broker.bootstrap, topic, "3", str(log)]
    shown: dict[str, Any] = json.loads(run([str(need_kaskade()), str(DRIVER), *arguments], timeout_s=120))
    assert shown["complaints"] == []
    assert [line for line in log.read_text().splitlines() if " INFO " not in line] == []
    # Name, partitions, replicas, in sync, groups, members, and about how many records and how much lag.
    assert [topic, "2", "1", "1", "1", "1", "≈3", "≈1"] in shown["topics"]
    leaders = [broker.leader_id(topic, partition) for partition in range(2)]
    assert shown["partitions-table"] == [
        [f"{partition}", f"{leader}", "0", count, count, f"[{leader}]", f"[{leader}]"]
        for partition, (leader, count) in enumerate(zip(leaders, ("3", "0"), strict=True))
    ]
    configs = dict(shown["configurations-table"])
    assert len(configs) >= KEYS_OF_KAFKA
    assert (configs["retention.ms"], configs["cleanup.policy"]) == ("604700000", "delete")
    group = f"group-of-{topic}"
    assert [row for row in shown["group-offsets-table"] if row[1] == "0"] == [[group, "0", "2", "3", "1"]]
    [[name, coordinator, state, assignor, _, members, lag]] = shown["groups-table"]
    assert (name, state) == (group, "stable")
    assert coordinator in {f"{one.bootstrap}/{number}" for number, one in broker.brokers.items()}
    assert (assignor, members, lag) == ("range", "1", "1")
    [[of_group, client_id, _, host, _]] = shown["group-members-table"]
    assert (of_group, client_id, host.strip("/")) == (group, "reader", "127.0.0.1")
    assert [(row[0], row[1], row[4], row[5]) for row in shown["records"]] == [
        (f"key {number}", f"value {number}", "0", str(number)) for number in range(3)
    ]
