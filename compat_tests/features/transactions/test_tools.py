"""Apache Kafka's tools for transactions: they write and list transactions, and end hanging ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.clients.java.commands import TOOLS, tool
from compat_tests.features.transactions.readers import committed, epoch_of, read, read_decided
from compat_tests.harness.batches import Batch, Record
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.target import target_broker
from compat_tests.harness.tools import java_tool
from compat_tests.harness.wire import WireConnection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 20.0
TRANSACTIONAL = 0x10
FORGOTTEN_ID = 4_711
RECORDS = 1_000


def transactions(broker: Broker, *arguments: str, check: bool = True) -> list[dict[str, str]]:
    """The rows of kafka-transactions.sh, by their column."""
    told = java_tool(
        f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.bootstrap, *arguments, check=check
    ).splitlines()
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in told] or [[]]
    return [dict(zip(head, row, strict=True)) for row in rows]


def ongoing(broker: Broker, topic: str) -> ConfluentProducer:
    """A producer whose transaction is open in partition 0; its transactional id is the topic."""
    its = producer(broker, transactional_id=topic)
    its.init_transactions(TIMEOUT_S)
    its.begin_transaction()
    its.produce(topic, "open", partition=0)
    its.flush(TIMEOUT_S)
    return its


def forgotten(broker: Broker, topic: str) -> None:
    """A transaction in partition 0 that no coordinator knows of."""
    batch = Batch(
        attributes=TRANSACTIONAL,
        producer_id=FORGOTTEN_ID,
        producer_epoch=2,
        base_sequence=0,
        records=(Record(value=b"forgotten"),),
    )
    partition = {"index": 0, "records": batch.encode()}
    fields = {
        "transactional_id": "nobody",
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    with WireConnection(broker.leader_of(topic).port) as connection:
        connection.send_frame(encode_request("produce", 9, fields))
        reply = connection.receive_frame()
    assert reply is not None
    [row] = decode_response("produce", 9, reply)["responses"][0]["partition_responses"]
    assert row["error_code"] == 0


def test_an_open_transaction_is_listed_and_described(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    its = ongoing(broker, topic)
    [listed] = transactions(broker, "list", "--transactional-id-pattern", f"{topic[:-1]}.")
    assert (listed["TransactionalId"], listed["TransactionState"]) == (topic, "Ongoing")
    assert transactions(broker, "list", "--transactional-id-pattern", "nothing") == []
    [described] = transactions(broker, "describe", "--transactional-id", topic)
    assert described["ProducerId"] == listed["ProducerId"]
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    assert int(described["TransactionDurationMs"]) >= 0
    [its_state] = transactions(broker, "describe-producers", "--topic", topic, "--partition", "0")
    assert its_state["ProducerId"] == listed["ProducerId"]
    assert its_state["CurrentTransactionStartOffset"] == "0"
    its.commit_transaction(TIMEOUT_S)
    epoch_of(broker, topic)  # once it is over
    [described] = transactions(broker, "describe", "--transactional-id", topic)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("CompleteCommit", "")
    [its_state] = transactions(broker, "describe-producers", "--topic", topic, "--partition", "0")
    assert its_state["CurrentTransactionStartOffset"] == "None"


def test_an_open_transaction_is_ended_by_force(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    its = ongoing(broker, topic)
    transactions(broker, "forceTerminateTransaction", "--transactionalId", topic)
    assert read_decided(broker, topic) == []
    with pytest.raises(KafkaException, match=r"fenced|old epoch|newer"):
        its.commit_transaction(TIMEOUT_S)


@pytest.fixture
def believing_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that does not verify transactions with their coordinator."""
    with target_broker(tmp_path, {"transaction.partition.verification.enable": "false"}) as running:
        yield running


def test_a_transaction_that_hangs_is_found_and_aborted(believing_broker: Broker, topic: str) -> None:
    broker = believing_broker
    create_topic(broker, topic)
    forgotten(broker, topic)
    plain = producer(broker)
    plain.produce(topic, "behind", partition=0)
    flush(plain)
    assert read(broker, topic) == []
    [found] = transactions(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert (found["Topic"], found["ProducerId"], found["ProducerEpoch"]) == (topic, str(FORGOTTEN_ID), "2")
    where = ["--topic", topic, "--partition", "0"]
    transactions(broker, "abort", *where, "--start-offset", found["StartOffset"])
    assert read_decided(broker, topic) == ["behind"]
    assert transactions(broker, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []


def test_the_tool_that_measures_producers(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    load = ["--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    told = tool(broker, "ProducerPerformance", *load, "--transactional-id", topic, "--transaction-duration-ms", "20")
    assert f"{RECORDS} records sent" in told
    assert len(read_decided(broker, topic)) == RECORDS


def test_the_console_consumer_reads_only_committed_records(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    its = producer(broker, transactional_id=topic)
    its.init_transactions(TIMEOUT_S)
    for value, is_commit in (("one", True), ("never", False), ("two", True)):
        its.begin_transaction()
        its.produce(topic, value, partition=0)
        if is_commit:
            its.commit_transaction(TIMEOUT_S)
        else:
            its.flush(TIMEOUT_S)
            its.abort_transaction(TIMEOUT_S)
    limits = ["--topic", topic, "--from-beginning", "--max-messages", "2"]
    told = tool(broker, "consumer.ConsoleConsumer", *limits, "--isolation-level", "read_committed")
    assert told.splitlines() == ["one", "two"]


def test_the_topics_of_the_coordinators_are_kafkas_own_format(broker: Broker, topic: str) -> None:
    """kafka-dump-log's decoders and the console consumer's formatter can read every record of a transaction's state."""
    group = f"group of {topic}"
    create_topic(broker, topic)
    its = ongoing(broker, topic)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    its.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), TIMEOUT_S)
    consumer.close()
    its.commit_transaction(TIMEOUT_S)
    assert committed(broker, group, topic) == 7
    epoch_of(broker, topic)  # once it is over
    dumped = dumped_log(broker, "__transaction_state", "--transaction-log-decoder")
    steps = [line for line in dumped.splitlines() if f'"transactionalId":"{topic}"' in line]
    states = [line.partition('"transactionStatus":"')[2].partition('"')[0] for line in steps]
    # Empty, ongoing with the topic, and with the group, decided, over: on each that has it.
    decided = ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert states == decided * len(broker.brokers)
    offsets = dumped_log(broker, "__consumer_offsets", "--offsets-decoder")
    assert f'"group":"{group}","topic":"{topic}","partition":0' in offsets
    assert "endTxnMarker: COMMIT" in offsets
    shown = java_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", "__transaction_state", "--from-beginning"),
        *("--formatter", f"{TOOLS}.consumer.TransactionLogMessageFormatter", "--timeout-ms", "15000"),
    )
    assert topic in shown


def dumped_log(broker: Broker, topic: str, decoder: str) -> str:
    """The output of kafka-dump-log about all partitions of a topic."""
    segments = [path for path in broker.data_dir.rglob("*.log") if path.parent.name.startswith(f"{topic}-")]
    files = ",".join(str(path) for path in segments if path.stat().st_size)
    dumped = java_tool(f"{TOOLS}.DumpLogSegments", decoder, "--print-data-log", "--files", files)
    assert "isvalid: false" not in dumped
    assert "Found bytes that are not valid" not in dumped
    return dumped


@pytest.mark.parametrize("mode", [[], ["--group-mode"], ["--group-mode", "--use-group-metadata"]])
def test_the_tool_that_copies_in_transactions(broker: Broker, topic: str, mode: list[str]) -> None:
    """The tool of Kafka's system tests that copies a topic; it aborts some of its transactions and goes back."""
    output, group = f"{topic}-output", f"group of {topic}"
    for name in (topic, output):
        create_topic(broker, name)
    source = producer(broker)
    for number in range(RECORDS):
        source.produce(topic, f"{number}", partition=0)
    flush(source)
    java_tool(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", output, "--transactional-id", topic, "--consumer-group", group),
        *("--transaction-size", "100", "--enable-random-aborts", *mode),
    )
    assert read_decided(broker, output) == [f"{number}" for number in range(RECORDS)]
    assert committed(broker, group, topic) == RECORDS
