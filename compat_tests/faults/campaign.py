"""A campaign against one broker: three idempotent producers never stop, faults are injected, then all is read back."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from compat_tests.clients.confluent.clients import TIMEOUT_S, create_topic, new_consumer, watermarks
from compat_tests.faults.history import Found, History, Place
from compat_tests.faults.writers import ConfluentWriter, JavaWriter, unpadded
from compat_tests.harness.requirements import need_kafka_jars
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confluent_kafka import Consumer

    from compat_tests.faults.writers import Writer
    from compat_tests.harness.broker import Broker

SEED = int(os.environ.get("KAFKAWIRE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
TOPIC = "chaos"
PARTITIONS = 4
# 1 MiB segments roll during the campaign; a journal that recycles its files does so too.
TOPIC_CONFIG = {"segment.bytes": str(1 << 20)}
CALM_MAX_S = 1.0
RECOVERY_MAX_S = 0.6
KILL_DURING_RECOVERY = 0.3


class Fault(Protocol):
    """A fault: it ends a running broker and leaves its data as the fault would; the broker can be launched again."""

    def __call__(self, broker: Broker) -> None: ...


def kill(broker: Broker) -> None:
    broker.kill()


def run(broker: Broker, directory: Path, fault: Fault, count: int) -> str:
    """Run the campaign and return a summary line for the ledger. Raises AssertionError with the seed and the
    anomalies."""
    need_kafka_jars()
    seed = SEED
    print(f"KAFKAWIRE_CHAOS_SEED={seed}")
    history = History()
    with broker:
        create_topic(broker, TOPIC, PARTITIONS, TOPIC_CONFIG)
        writers: list[Writer] = [
            ConfluentWriter("a", broker, TOPIC, PARTITIONS, history),
            ConfluentWriter("b", broker, TOPIC, PARTITIONS, history),
            JavaWriter(7, broker, TOPIC, directory, history),
        ]
        started: list[Writer] = []
        try:
            for writer in writers:
                started.append(writer)
                writer.start()
            in_recovery = _faults(broker, random.Random(seed), fault, count)
        finally:
            failures = finish(started)
        assert not failures, f"seed {seed}: {failures}"
        anomalies = history.check(read_all(broker))
    summary = f"seed {seed}, {count} x {fault_name(fault)} ({in_recovery} during recovery), "
    summary += f"{len(history.acked)} acknowledged, {len(anomalies)} anomalies"
    print(summary)
    note_for_ledger(summary)
    assert not anomalies, f"seed {seed}: {anomalies}\n{broker.log_tail()}"
    assert len(history.acked) > 100 * count, "too few acknowledgements between the faults to mean anything"
    return summary


def fault_name(fault: Fault) -> str:
    return "kill -9" if fault is kill else getattr(fault, "__name__", "power cut").replace("_", " ")


def _faults(broker: Broker, choice: random.Random, fault: Fault, count: int) -> int:
    """Inject `count` faults, some while the broker recovers from the one before; leave the broker serving."""
    in_recovery = 0
    for _ in range(count):
        time.sleep(choice.uniform(0.05, CALM_MAX_S))
        strike(broker, fault)
        while in_recovery < count // 2 and choice.random() < KILL_DURING_RECOVERY:
            broker.launch()
            time.sleep(choice.uniform(0, RECOVERY_MAX_S))
            strike(broker, fault)
            in_recovery += 1
        broker.start()
    return in_recovery


def strike(broker: Broker, fault: Fault) -> None:
    """Inject the fault. Raises AssertionError if the broker has died by itself before."""
    assert broker.is_alive, f"the broker was gone before the fault:\n{broker.log_tail()}"
    fault(broker)


def finish(writers: Sequence[Writer]) -> list[str]:
    """Stop all writers and return their failures."""
    failures = []
    for writer in writers:
        try:
            writer.finish()
        except AssertionError as failure:
            failures.append(str(failure))
    return failures


def read_all(broker: Broker, topic: str = TOPIC) -> list[Found]:
    """Every record of every partition, checked by the consumer against its CRC."""
    consumer = new_consumer(broker, check_crcs=True)
    try:
        return [found for partition in range(PARTITIONS) for found in _read_partition(consumer, topic, partition)]
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> list[Found]:
    first, end = watermarks(consumer, TopicPartition(topic, partition))
    assert first == 0
    found: list[Found] = []
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    next_offset = 0
    while next_offset < end:
        batch = consumer.consume(min(10_000, end - next_offset), TIMEOUT_S)  # which waits for as many
        assert batch, f"partition {partition} ends at {end}, reads stop behind {found[-1:]}"
        for message in batch:
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            found.append(Found(Place(partition, offset), unpadded(value.decode())))
            next_offset = offset + 1
    return found
