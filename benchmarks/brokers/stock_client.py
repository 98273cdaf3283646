"""Throughput that a user sees: confluent-kafka with its defaults and a linger of 5 ms; 1 KiB records in, and out again.

The client shares the machine and is a large part of the measurement, so its own CPU is shown beside the broker's. Its
own waits are kept out, because they are by chance and as long as all the rest:

- With several partitions it may leave all but one empty, and a fetch of only empty ones takes half a second.
- A consumer that gets more than it holds, by a fast broker, asks for nothing during a second: this one asks at once.
- A consumer needs up to a second until it fetches: the clock runs from the first record on.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.lib.group_requests import wait_for_coordinator
from benchmarks.lib.wire_requests import end_offsets
from compat_tests.clients.confluent.clients import producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from confluent_kafka import Message

    from benchmarks.lib.bench import Contender, Options

RECORDS = 400_000
VALUE = bytes(range(256)) * (KIB // 256)
PORTION = 1_000  # records that a consumer asks for at once
WITHIN_S = 120.0


class Reports:
    """Counts the stored records; the first failed record ends the run."""

    def __init__(self) -> None:
        self.stored = 0

    def __call__(self, error: object, _: Message) -> None:
        assert error is None, f"not stored: {error}"
        self.stored += 1


def send(contender: Contender, topic: str, count: int) -> None:
    """Send so many records, and wait until each is acknowledged."""
    client, reports = producer(contender.broker), Reports()
    for _ in range(count):
        while True:
            try:
                client.produce(topic, VALUE, on_delivery=reports)
                break
            except BufferError:  # the queue is full
                client.poll(0.01)
        client.poll(0)
    left = client.flush(WITHIN_S)
    assert reports.stored == count, f"{reports.stored} records of {count} are stored, {left} are still queued"


def receive(consumer: Consumer, count: int) -> None:
    """Receive so many records, and check each for an error."""
    received = 0
    while received < count:
        messages = consumer.consume(min(PORTION, count - received), WITHIN_S)
        assert messages, f"{received} records of {count} in {WITHIN_S:.0f} s"
        for message in messages:
            assert message.error() is None, message.error()
            assert len(message) == len(VALUE), f"a record of {len(message)} bytes"
        received += len(messages)


def measured(contender: Contender, action: Callable[[], None], count: int) -> report.Figures:
    """Run an action. Returns its figures, with the CPU of the broker and of this client."""
    moved_bytes = count * len(VALUE)
    broker_s, client_s, begun_s = machine.cpu_s(contender.broker.pid), time.process_time(), time.perf_counter()
    action()
    seconds = time.perf_counter() - begun_s
    broker_s, client_s = machine.cpu_s(contender.broker.pid) - broker_s, time.process_time() - client_s
    return {
        "records/s": count / seconds,
        "MB/s": moved_bytes / 1e6 / seconds,
        "CPU s/GB": broker_s / (moved_bytes / 1e9),
        "client CPU s/GB": client_s / (moved_bytes / 1e9),
    }


def produce(count: int, contender: Contender) -> report.Figures:
    topic = bench.new_topic(contender, 1)
    machine.back_memory(2 * count * len(VALUE))
    figures = measured(contender, partial(send, contender, topic, count), count)
    (stored,) = end_offsets(contender.broker.port, topic, [0])
    assert stored == count, f"{contender.name} has {stored} records of {count}"
    bench.delete_topic(contender, topic)
    return figures


def consume(count: int, topics: dict[str, str], contender: Contender) -> report.Figures:
    """Consume from the first record on."""
    topic = topics[contender.name]
    settings = {"bootstrap.servers": contender.broker.bootstrap, "group.id": topic, "fetch.queue.backoff.ms": 0}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])  # no group has to settle first
        receive(consumer, 1)
        return measured(contender, partial(receive, consumer, count - 1), count - 1)


def filled_topic(count: int, contender: Contender) -> str:
    topic = bench.new_topic(contender, 1)
    send(contender, topic, count)
    return topic


def compare(directory: Path, options: Options) -> report.Report:
    count = options.count(RECORDS, 1_000)
    with bench.both(directory, with_kafka=not options.toy) as shipped:
        for contender in shipped:  # a consumer that has a group looks for its coordinator
            wait_for_coordinator(contender.broker.port, "first")
        bench.warm(shipped, options)
        field = bench.durabilities(shipped)
        made = bench.alternate(f"produce {count:,} records", "MB/s", field, partial(produce, count), options)
        readers = [contender for contender in field if contender.fetches]
        topics = {contender.name: filled_topic(count, contender) for contender in readers}
        read = bench.alternate(f"consume {count:,} records", "MB/s", readers, partial(consume, count, topics), options)
        return report.Report(machine.facts(), [made, read], bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("stock-client", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
