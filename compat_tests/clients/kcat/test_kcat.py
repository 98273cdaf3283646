"""kcat (librdkafka 2.0): the first commands of an operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic, wait_until
from compat_tests.harness.tools import kcat

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

LINES = "".join(f"k{number}:v{number}\n" for number in range(10))


def produce(broker: Broker, topic: str, *arguments: str, stdin: str = LINES) -> None:
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", *arguments, stdin=stdin)


def consume(broker: Broker, topic: str, offset: str) -> list[str]:
    """The payloads from an offset to the end of partition 0, in kcat's notation for offsets."""
    return kcat(broker.bootstrap, "-C", "-q", "-e", "-t", topic, "-p", "0", "-o", offset).split()


def test_metadata_names_the_brokers(broker: Broker) -> None:
    wait_until(lambda: f"{len(broker.brokers)} brokers:" in kcat(broker.bootstrap, "-L"), "not all are named")
    text = kcat(broker.bootstrap, "-L")
    assert all(f"at {one.bootstrap}" in text for one in broker.brokers.values())
    assert text.count("(controller)") == 1


def test_metadata_as_json(broker: Broker, topic: str) -> None:
    produce(broker, topic)
    described = json.loads(kcat(broker.bootstrap, "-L", "-J", "-t", topic))
    names = {row["id"]: row["name"] for row in described["brokers"]}
    assert names == {number: one.bootstrap for number, one in broker.brokers.items()}
    (topic_row,) = described["topics"]
    assert topic_row["topic"] == topic
    (partition,) = topic_row["partitions"]
    assert (partition["partition"], partition["leader"]) == (0, broker.leader_id(topic))
    assert {one["id"] for one in partition["replicas"]} == set(names)
    assert partition["isrs"] == partition["replicas"]


def test_produce_and_consume_with_keys_headers_and_timestamps(broker: Broker, topic: str) -> None:
    produce(broker, topic, "-H", "origin=here", "-H", "empty=", stdin="key:value\n")
    record = json.loads(kcat(broker.bootstrap, "-C", "-q", "-e", "-J", "-t", topic, "-o", "beginning"))
    assert record["headers"] == ["origin", "here", "empty", ""]
    assert (record["key"], record["payload"]) == ("key", "value")
    assert (record["partition"], record["offset"], record["tstype"]) == (0, 0, "create")


def test_null_key_and_null_value(broker: Broker, topic: str) -> None:
    produce(broker, topic, "-Z", stdin=":\n")
    record = json.loads(kcat(broker.bootstrap, "-C", "-q", "-e", "-J", "-t", topic, "-o", "beginning"))
    assert record["key"] is None
    assert record["payload"] is None


def test_offsets_from_beginning_end_and_middle(broker: Broker, topic: str) -> None:
    produce(broker, topic)
    everything = [f"v{number}" for number in range(10)]
    assert consume(broker, topic, "beginning") == everything
    assert consume(broker, topic, "7") == everything[7:]
    assert consume(broker, topic, "-3") == everything[-3:]
    assert consume(broker, topic, "end") == []


def test_offsets_by_timestamp(broker: Broker, topic: str) -> None:
    produce(broker, topic)
    records = [
        json.loads(line)
        for line in kcat(broker.bootstrap, "-C", "-q", "-e", "-J", "-t", topic, "-o", "beginning").splitlines()
    ]
    first_ms, last_ms = records[0]["ts"], records[-1]["ts"]
    assert f"{topic} [0] offset 0" in kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:{first_ms}")
    assert f"{topic} [0] offset -1" in kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:{last_ms + 1}")
    assert f"{topic} [0] offset 10" in kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:-1")
    assert f"{topic} [0] offset 0" in kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:-2")
    assert consume(broker, topic, f"s@{first_ms}") == [record["payload"] for record in records]


def test_acks_none_leader_and_all(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)  # one replica: a leader that does not know its followers yet refuses acks=1
    produce(broker, topic, stdin="k:first\n")  # with acks=0, there is no error if the leader is not ready
    for acks in ("0", "1", "all"):
        produce(broker, topic, "-X", f"acks={acks}", stdin=f"k:{acks}\n")
    assert consume(broker, topic, "beginning") == ["first", "0", "1", "all"]
