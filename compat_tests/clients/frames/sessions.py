"""The sessions of each client while its requests are recorded: short, with tiny records.

All of them produce to one partition and to many, in the ways that change a request (acks, idempotence, codec), and read
both by a group that commits and beats often, and by hand, with partitions paused in between so that incremental fetches
name, forget and leave out partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.sources import go_program
from compat_tests.harness.tools import java_tool, kcat, run

with warnings.catch_warnings():  # of how it reads its message definitions
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyPartition

if TYPE_CHECKING:
    from collections.abc import Callable

TOPICS = {"events": 1, "orders": 3, "payments": 12}
MANY = 40  # records to all partitions
ROUNDS = 10  # of producing a little and reading it
POLL_S = 0.7  # some fetches find nothing
HEARTBEAT_MS, SESSION_MS, COMMIT_MS = 300, 6000, 500


def play_confluent(bootstrap: str) -> None:
    """librdkafka with its defaults, and with each setting by itself."""
    for settings in (
        {},
        {"enable.idempotence": True},
        {"acks": 1},
        {"acks": 0},
        {"compression.type": "lz4"},
        {"compression.type": "zstd", "linger.ms": 50},
    ):
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for number, topic in _spread():
            producer.produce(topic, b"v", key=b"%d" % number)
        producer.flush(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.list_topics(timeout=20)  # it says null in four bytes where one is right: three are left over
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "auto.commit.interval.ms": COMMIT_MS,
        "auto.offset.reset": "earliest",
    }
    for assigned in ([], [TopicPartition("payments", number, 0) for number in range(12)]):
        consumer = Consumer(settings)
        if assigned:
            consumer.assign(assigned)
        else:
            consumer.subscribe(["events", "orders"])
        for turn in range(ROUNDS):
            producer.produce("payments" if assigned else "orders", b"v")
            producer.flush(20)
            consumer.consume(2 * MANY, POLL_S)
            if assigned and turn == ROUNDS // 2:
                consumer.pause(assigned[:4])
        consumer.commit(asynchronous=False)
        consumer.close()


def play_kcat(bootstrap: str) -> None:
    """librdkafka 2.0, which Debian's kcat is linked with."""
    lines = "".join("v\n" for _ in range(MANY))
    for options in ([], ["-X", "enable.idempotence=true"], ["-X", "acks=1"], ["-X", "acks=0"], ["-z", "lz4"]):
        kcat(bootstrap, "-P", "-t", "orders", *options, stdin="v\n")
        kcat(bootstrap, "-P", "-t", "payments", *options, stdin=lines)
    kcat(bootstrap, "-C", "-t", "payments", "-e")
    kcat(bootstrap, "-C", "-t", "orders", "-p", "1", "-o", "beginning", "-e")
    often = ["-X", f"heartbeat.interval.ms={HEARTBEAT_MS}", "-X", f"session.timeout.ms={SESSION_MS}"]
    often += ["-X", f"auto.commit.interval.ms={COMMIT_MS}", "-X", "auto.offset.reset=earliest"]
    run(["timeout", "8", "kcat", "-b", bootstrap, *often, "-G", "readers", "orders", "payments"], check=False)


def play_kafka_python(bootstrap: str) -> None:
    for settings in (
        {},
        {"enable_idempotence": False, "acks": 1},
        {"enable_idempotence": False, "acks": 0},
        {"compression_type": "lz4", "linger_ms": 50},
        {"compression_type": "zstd"},
    ):
        producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
        for number, topic in _spread():
            producer.send(topic, b"v", key=b"%d" % number)
        producer.flush(20)
        producer.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for assigned in ([], [PyPartition("payments", number) for number in range(12)]):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id="readers",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            auto_commit_interval_ms=COMMIT_MS,
            auto_offset_reset="earliest",
        )
        if assigned:
            consumer.assign(assigned)
        else:
            consumer.subscribe(["events", "orders"])
        for turn in range(ROUNDS):
            producer.send("payments" if assigned else "orders", b"v").get(20)
            _poll_for(lambda consumer=consumer: consumer.poll(100))  # type: ignore[misc]
            if assigned and turn == ROUNDS // 2:
                consumer.pause(*assigned[:4])
        consumer.commit()
        consumer.close()
    producer.close()


def play_aiokafka(bootstrap: str) -> None:
    asyncio.run(asyncio.wait_for(_play_aiokafka(bootstrap), 120))


async def _play_aiokafka(bootstrap: str) -> None:
    for settings in (
        {},
        {"enable_idempotence": True},
        {"acks": 0},
        {"acks": "all", "compression_type": "lz4", "linger_ms": 50},
        {"compression_type": "zstd"},
    ):
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            sent = [await producer.send(topic, b"v", key=b"%d" % number) for number, topic in _spread()]
            await asyncio.gather(*sent)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for assigned in ([], [AioPartition("payments", number) for number in range(12)]):
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id="readers",
                heartbeat_interval_ms=HEARTBEAT_MS,
                session_timeout_ms=SESSION_MS,
                auto_commit_interval_ms=COMMIT_MS,
                auto_offset_reset="earliest",
            )
            if assigned:
                consumer.assign(assigned)
            else:
                consumer.subscribe(["events", "orders"])
            await consumer.start()
            for turn in range(ROUNDS):
                await producer.send_and_wait("payments" if assigned else "orders", b"v")
                with contextlib.suppress(asyncio.TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        while True:
                            await consumer.getmany(timeout_ms=100)
                if assigned and turn == ROUNDS // 2:
                    consumer.pause(*assigned[:4])
            await consumer.commit()
            await consumer.stop()


def play_franz_go(bootstrap: str) -> None:
    run([go_program("sessions"), bootstrap], timeout_s=120)


def play_java(bootstrap: str) -> None:
    source = str(Path(__file__).with_name("Sessions.java"))
    run(["java", "-Xmx256m", *QUICK_JVM, "-cp", CLASSPATH, source, bootstrap], timeout_s=120)


def play_java_tools(bootstrap: str) -> None:
    """Kafka's console and performance tools, with Java's client as they set it up."""
    tools, server = "org.apache.kafka.tools", ["--bootstrap-server", bootstrap]
    lines = "v\n" * MANY
    java_tool(f"{tools}.ConsoleProducer", *server, "--topic", "orders", stdin=lines)
    java_tool(f"{tools}.ConsoleProducer", *server, "--topic", "events", "--compression-codec", "lz4", stdin=lines)
    load = ["--topic", "payments", "--num-records", "200", "--record-size", "1", "--throughput", "-1"]
    java_tool(f"{tools}.ProducerPerformance", *server, *load)
    java_tool(f"{tools}.ProducerPerformance", *server, *load, "--command-property", "acks=1")
    beats = [f"heartbeat.interval.ms={HEARTBEAT_MS}", f"auto.commit.interval.ms={COMMIT_MS}"]
    options = [part for each in beats for part in ("--command-property", each)]
    wait = ["--from-beginning", "--timeout-ms", "3000", "--group", "readers", *options]
    java_tool(f"{tools}.consumer.ConsoleConsumer", *server, "--topic", "orders", *wait, check=False)
    java_tool(
        f"{tools}.ConsumerPerformance", *server, "--topic", "payments", "--num-records", "400", "--group", "testers"
    )


def _spread() -> list[tuple[int, str]]:
    """Records by number with their topics: one topic after the other, so that batches of all of them meet."""
    return [(number, topic) for number in range(MANY) for topic in TOPICS]


def _poll_for(poll: Callable[[], Any]) -> None:
    end_s = time.monotonic() + POLL_S
    while time.monotonic() < end_s:
        poll()


SESSIONS: dict[str, Callable[[str], None]] = {
    "kafka-clients": play_java,
    "kafka-tools": play_java_tools,
    "confluent-kafka": play_confluent,
    "kcat": play_kcat,
    "franz-go": play_franz_go,
    "kafka-python": play_kafka_python,
    "aiokafka": play_aiokafka,
}
