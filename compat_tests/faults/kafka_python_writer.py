"""Writer of numbered values to partitions in turn, by kafka-python, until stdin ends; `told` describes its output.

Arguments: broker, topic, partitions, name of the writer, records per second.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from kafka import KafkaProducer

from compat_tests.faults.writer_events import FINISH_TIMEOUT_S, numbers, print_acked, print_ended, print_failed


def report(value: str, metadata: Any) -> None:
    print_acked(metadata.partition, metadata.offset, value)


def main() -> None:
    bootstrap, topic, partitions, name, records_per_s = sys.argv[1:]
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", delivery_timeout_ms=600_000)
    for number in numbers(float(records_per_s)):
        value = f"{name}.{number}"
        sent = producer.send(topic, value.encode(), partition=number % int(partitions))
        sent.add_callback(partial(report, value))
        sent.add_errback(partial(print_failed, value))
    producer.flush(FINISH_TIMEOUT_S)
    producer.close(1)
    print_ended(name)


if __name__ == "__main__":
    main()
