"""`kafkawire transactions` as a user types it, with a real producer that does not end its transaction."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    create_topic,
    flush,
    new_consumer,
    producer,
    read,
    wait_until,
)
from compat_tests.features.cli.commands import asked, document, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Producer

    from compat_tests.harness.broker import Broker

QUIET_S = 2  # in which a consumer that could read would have


@contextmanager
def hanging(broker: Broker, topic: str) -> Iterator[Producer]:
    """A producer with an open transaction that has a record in partition 1 of two; only the test ends it."""
    create_topic(broker, topic, 2)
    client = producer(broker, transactional_id=f"id-of-{topic}")
    client.init_transactions(TIMEOUT_S)
    client.begin_transaction()
    client.produce(topic, b"never to be seen", partition=1)
    flush(client)
    try:
        yield client
    finally:
        client.abort_transaction(TIMEOUT_S)


def append(broker: Broker, topic: str) -> None:
    """Append a record without a transaction behind the open transaction."""
    client = producer(broker)
    client.produce(topic, b"behind", partition=1)
    flush(client)


def described(broker: Broker, topic: str) -> Any:
    (found,) = document(broker, "transactions", "describe", f"id-of-{topic}")
    return found


def listed(broker: Broker, *filters: str) -> dict[str, Any]:
    return {one["transactional_id"]: one for one in document(broker, "transactions", "list", *filters)}


def test_list_and_describe(broker: Broker, topic: str) -> None:
    name = f"id-of-{topic}"
    with hanging(broker, topic):
        found = described(broker, topic)
        assert (found["state"], found["timeout_ms"], found["producer_epoch"]) == ("Ongoing", 60_000, 0)
        assert found["partitions"] == [{"topic": topic, "partition": 1}]
        assert 0 <= found["running_ms"] < 60_000
        row = {"transactional_id": name, "state": "Ongoing", "producer_id": found["producer_id"]}
        assert listed(broker)[name] == row
        assert listed(broker, "--state", "ongoing", "--longer-than-ms", "0", "--pattern", "id-of-.*")[name] == row
        for filters in (["--state", "Empty"], ["--longer-than-ms", "3600000"], ["--pattern", "of"]):
            assert name not in listed(broker, *filters)
        assert "the pattern is not valid" in refusal(broker, "transactions", "list", "--pattern", "(")
        assert f"{topic}:1" in asked(broker, "transactions", "describe", name).stdout
    wait_until(lambda: bool(described(broker, topic)["state"] == "CompleteAbort"), "the transaction is not over")
    found = described(broker, topic)
    assert (found["started_ms"] > 0, found["running_ms"], found["partitions"]) == (True, None, [])


def test_an_id_that_there_is_not(broker: Broker) -> None:
    refused = refusal(broker, "transactions", "describe", "nobody")
    assert refused == "transactional id nobody: the transactional id does not exist"


@pytest.mark.parametrize("option", ["--producer-id", "--start-offset"])
def test_a_consumer_reads_past_a_hanging_transaction_after_its_abort(broker: Broker, topic: str, option: str) -> None:
    with hanging(broker, topic):
        append(broker, topic)
        consumer = new_consumer(broker, isolation_level="read_committed")
        try:
            consumer.assign([TopicPartition(topic, 1, 0)])
            assert consumer.poll(QUIET_S) is None

            (found,) = document(broker, "transactions", "abort", f"{topic}:1")
            assert (found["start_offset"], found["coordinator_epoch"], found["aborted"]) == (0, None, False)
            assert found["producer_id"] == described(broker, topic)["producer_id"]
            which = str(found[option.removeprefix("--").replace("-", "_")])
            (done,) = document(broker, "transactions", "abort", f"{topic}:1", option, which)
            assert done == {**found, "aborted": True}

            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert (message.value(), message.offset()) == (b"behind", 1)
        finally:
            consumer.close()
        assert len(read(broker, topic, 0, 2, partition=1, isolation_level="read_uncommitted")) == 2
        refused = refusal(broker, "transactions", "abort", f"{topic}:1", option, which)
        assert refused.startswith(f"{topic}-1 has no open transaction ")
        assert document(broker, "transactions", "abort", f"{topic}:1") == []


def test_nothing_to_abort(broker: Broker, topic: str) -> None:
    create_topic(broker, topic, 2)
    append(broker, topic)
    arguments = ["--producer-id", "0"]
    refused = refusal(broker, "transactions", "abort", f"{topic}:1", *arguments)
    assert refused == f"{topic}-1 has no open transaction of producer 0"
    refused = refusal(broker, "transactions", "abort", f"{topic}:2", *arguments)
    assert refused == f"{topic}-2: there is no such topic or partition"
