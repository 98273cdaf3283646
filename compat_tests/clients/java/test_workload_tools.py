"""Apache Kafka's tools that make and measure load: they count all records, in order."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import TIMEOUT_S, create_topic, new_consumer, read
from compat_tests.clients.java.commands import tool

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

RECORDS = 500
Event = dict[str, Any]


def events(broker: Broker, name: str, *arguments: str) -> list[Event]:
    """The events of one of the verifiable clients, a JSON document a line."""
    return [json.loads(line) for line in tool(broker, name, *arguments).splitlines()]


def named(told: list[Event], name: str) -> list[Event]:
    return [event for event in told if event["name"] == name]


def produce(broker: Broker, topic: str, acks: str = "-1") -> list[Event]:
    """Produce numbers from 0 on."""
    return events(broker, "VerifiableProducer", "--topic", topic, "--max-messages", str(RECORDS), "--acks", acks)


@pytest.mark.parametrize("acks", ["-1", "1", "0"])
def test_verifiable_producer(broker: Broker, topic: str, acks: str) -> None:
    create_topic(broker, topic)
    told = produce(broker, topic, acks)
    sent = [(event["offset"], event["value"]) for event in named(told, "producer_send_success")]
    assert sent == [(-1 if acks == "0" else number, str(number)) for number in range(RECORDS)]
    assert named(told, "producer_send_error") == []
    [total] = named(told, "tool_data")
    assert (total["sent"], total["acked"]) == (RECORDS, RECORDS)
    assert [message.value() for message in read(broker, topic, 0, RECORDS)] == [b"%d" % n for n in range(RECORDS)]


def test_verifiable_consumer(broker: Broker, topic: str) -> None:
    """A member of a group reads in order, and its commits are acknowledged and stored."""
    create_topic(broker, topic)
    produce(broker, topic)
    group = f"group-of-{topic}"
    limits = ["--topic", topic, "--group-id", group, "--verbose", "--max-messages", "300"]
    told = events(broker, "VerifiableConsumer", *limits)
    first = [(event["offset"], event["value"]) for event in named(told, "record_data")]
    assert first == [(number, str(number)) for number in range(300)]
    assert [len(event["partitions"]) for event in named(told, "partitions_assigned")] == [1]
    assert all(event["success"] for event in named(told, "offsets_committed"))
    assert named(told, "offsets_committed")[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 300}]
    assert len(named(told, "shutdown_complete")) == 1
    consumer = new_consumer(broker, group_id=group)
    [kept] = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    assert kept.offset == 300


def test_performance_of_producer_and_consumer(broker: Broker, topic: str) -> None:
    """Producers with five requests in flight, as fast as possible: a wrong sequence number would be an error."""
    create_topic(broker, topic, partitions=3)
    size = ["--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    assert (
        tool(broker, "ProducerPerformance", "--topic", topic, *size).splitlines()[-1].startswith("20000 records sent")
    )
    names, row = tool(
        broker, "ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--timeout", "60000"
    ).splitlines()
    measured = dict(zip(names.split(", "), row.split(", "), strict=True))
    assert measured["data.consumed.in.nMsg"] == "20000"
    assert measured["data.consumed.in.MB"] == f"{20_000 * 100 / 2**20:.4f}"


def test_end_to_end_latency(broker: Broker, topic: str) -> None:
    """Each record is read before the next one is sent, and compared; the tool fails if a record differs."""
    records = ["--num-records", "200", "--record-size", "100", "--record-key-size", "10", "--num-headers", "2"]
    headers = ["--record-header-key-size", "5", "--record-header-size", "10"]
    shown = tool(broker, "EndToEndLatency", "--topic", topic, "--producer-acks", "all", *records, *headers)
    assert float(re.findall(r"^Avg latency: ([0-9.]+) ms$", shown, re.MULTILINE)[0]) > 0
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+$", shown, re.MULTILINE)
    assert len(read(broker, topic, 0, 200)) == 200
