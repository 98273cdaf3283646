"""Transactions by every client that has them: commit, abort, offsets, fencing, time-out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from compat_tests.clients.confluent.clients import create_topic, producer, wait_until
from compat_tests.features.transactions.producers import ALL
from compat_tests.features.transactions.readers import committed, epoch_of, read, read_decided

if TYPE_CHECKING:
    from compat_tests.features.transactions.conftest import NewProducer
    from compat_tests.harness.broker import Broker

TIMEOUT_S = 20.0
# franz-go only commits offsets of records that a session has read: see test_franz_go_transforms.
WITH_OFFSETS = [name for name in ALL if name != "franz-go"]
# The error of a producer that was fenced, in the words of each library.
FENCED = re.compile(r"fenced|newer (instance|producer)|InvalidProducerEpoch|older epoch|old epoch", re.IGNORECASE)
OF_SECOND_PROTOCOL = ("java", "franz-go")
EACH_CLIENT = pytest.mark.parametrize("client", ALL)


@EACH_CLIENT
def test_commit_and_abort(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    create_topic(broker, topic)
    its = new_producer(client, topic)
    its.ask("initialise")
    its.transact(topic, "a", "b")
    its.transact(topic, "never", end="abort")
    its.transact(topic, "c")
    assert read_decided(broker, topic) == ["a", "b", "c"]
    assert read(broker, topic, "read_uncommitted") == ["a", "b", "never", "c"]
    its.ask("begin")
    its.ask("send", topic=topic, partition=0, value="d")
    plain = producer(broker)
    plain.produce(topic, "behind", partition=0)
    plain.flush(TIMEOUT_S)
    assert read(broker, topic) == ["a", "b", "c"], "an open transaction hides what follows"
    its.ask("commit")
    wait_until(lambda: read(broker, topic) == ["a", "b", "c", "d", "behind"], "not all is read")
    its.close()


@EACH_CLIENT
def test_which_protocol_a_client_speaks(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    """Clients of both protocols work together. Every transaction of the second has an epoch of its own (KIP-890)."""
    create_topic(broker, topic)
    its = new_producer(client, topic)
    its.ask("initialise")
    epochs = []
    for end in ("commit", "abort", "commit"):
        its.transact(topic, "value", end=end)
        epochs.append(epoch_of(broker, topic))
    its.close()
    first = epochs[0]
    assert epochs == ([first, first + 1, first + 2] if client in OF_SECOND_PROTOCOL else [first] * 3)


@EACH_CLIENT
def test_several_partitions_end_together(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    others = [f"{topic}-{number}" for number in range(3)]
    for name in others:
        create_topic(broker, name)
    its = new_producer(client, topic)
    its.ask("initialise")
    for end in ("commit", "abort", "commit"):
        its.ask("begin")
        for name in others:
            its.ask("send", topic=name, partition=0, value=end)
        assert all("abort" not in read(broker, name) for name in others)
        its.ask(end)
    for name in others:
        wait_until(lambda name=name: read(broker, name) == ["commit", "commit"], f"{name} is not whole")  # type: ignore[misc]


@pytest.mark.parametrize("client", WITH_OFFSETS)
def test_offsets(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    create_topic(broker, topic)
    its, group = new_producer(client, topic), f"readers of {topic}"
    its.ask("initialise")
    for end, offset, expected in (("abort", 3, -1001), ("commit", 5, 5), ("abort", 7, 5)):
        its.ask("begin")
        its.ask("send", topic=topic, partition=0, value=end)
        its.ask("offsets", group=group, topic=topic, partition=0, offset=offset)
        its.ask(end)
        assert committed(broker, group, topic) == expected
    assert read_decided(broker, topic) == ["commit"]


def test_offsets_are_unstable_until_the_end(broker: Broker, topic: str, new_producer: NewProducer) -> None:
    create_topic(broker, topic)
    its, group = new_producer("confluent", topic), f"readers of {topic}"
    its.ask("initialise")
    its.ask("begin")
    its.ask("offsets", group=group, topic=topic, partition=0, offset=5)
    asking = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "isolation.level": "read_committed"})
    with pytest.raises(KafkaException, match=r"_TIMED_OUT|Timed out|UNSTABLE"):
        asking.committed([TopicPartition(topic, 0)], timeout=1.0)
    asking.close()
    its.ask("commit")
    assert committed(broker, group, topic) == 5


@EACH_CLIENT
def test_a_second_producer_fences_the_first(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    create_topic(broker, topic)
    first, second = new_producer(client, topic), new_producer(client, topic)
    first.ask("initialise")
    first.transact(topic, "before")
    first.ask("begin")
    first.ask("send", topic=topic, partition=0, value="lost")
    second.ask("initialise")
    error = first.try_task("send", topic=topic, partition=0, value="too late") or first.try_task("commit")
    assert FENCED.search(error), error
    second.transact(topic, "after")
    assert read_decided(broker, topic) == ["before", "after"]


@EACH_CLIENT
def test_a_transaction_that_takes_too_long(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    create_topic(broker, topic)
    its = new_producer(client, topic, timeout_ms=5_000)
    its.ask("initialise")
    its.ask("begin")
    its.ask("send", topic=topic, partition=0, value="too slow")
    wait_until(lambda: "too slow" in read(broker, topic, "read_uncommitted"), "it is not there")
    plain = producer(broker)
    plain.produce(topic, "behind", partition=0)
    plain.flush(TIMEOUT_S)
    wait_until(lambda: read(broker, topic) == ["behind"], "it is not aborted")
    assert its.try_task("commit"), "the commit of an aborted transaction"
    again = new_producer(client, topic, timeout_ms=30_000)
    again.ask("initialise")
    again.transact(topic, "in time")
    assert read_decided(broker, topic) == ["behind", "in time"]


@EACH_CLIENT
def test_a_client_that_dies(broker: Broker, topic: str, new_producer: NewProducer, client: str) -> None:
    """A client dies with an open transaction: its successor does not wait for the transaction timeout."""
    create_topic(broker, topic)
    its = new_producer(client, topic)
    its.ask("initialise")
    its.ask("begin")
    its.ask("send", topic=topic, partition=0, value="half")
    its.crash()
    again = new_producer(client, topic)
    again.ask("initialise")
    again.transact(topic, "whole")
    assert read_decided(broker, topic) == ["whole"]


def test_franz_go_transforms(broker: Broker, topic: str, new_producer: NewProducer) -> None:
    """A session of franz-go: reads, writes and commits are one transaction."""
    output, group = f"{topic}-output", f"readers of {topic}"
    create_topic(broker, topic)
    create_topic(broker, output)
    source = producer(broker)
    for number in range(10):
        source.produce(topic, f"{number}", partition=0)
    source.flush(TIMEOUT_S)
    its = new_producer("franz-go", topic)
    asked = {"topic": topic, "group": group, "output": output, "count": 10}
    its.ask("transform", **asked, commit=False)
    assert read_decided(broker, output) == []
    assert committed(broker, group, topic) == -1001
    its.ask("transform", **asked, commit=True)
    assert read_decided(broker, output) == [f"{number}" for number in range(10)]
    assert committed(broker, group, topic) == 10
