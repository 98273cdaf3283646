"""Writer of numbered values to partitions in turn, by kafka-python, until stdin ends; `told` describes its output.

Arguments: broker, topic, partitions, name of the writer, records per second.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from kafka import KafkaProducer

from compat_tests.chaos.told import FINISH_TIMEOUT_S, numbers, tell_acked, tell_ended, tell_failed


def tell(value: str, metadata: Any) -> None:
    tell_acked(metadata.partition, metadata.offset, value)


def main() -> None:
    bootstrap, topic, partitions, name, records_per_s = sys.argv[1:]
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", delivery_timeout_ms=600_000)
    for number in numbers(float(records_per_s)):
        value = f"{name}.{number}"
        sent = producer.send(topic, value.encode(), partition=number % int(partitions))
        sent.add_callback(partial(tell, value))
        sent.add_errback(partial(tell_failed, value))
    producer.flush(FINISH_TIMEOUT_S)
    producer.close(1)
    tell_ended(name)


if __name__ == "__main__":
    main()
