"""Writer of numbered values to partitions in turn, by aiokafka, until stdin ends; `told` describes its output.

Arguments: broker, topic, partitions, name of the writer, records per second.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer

from compat_tests.faults.writer_events import FINISH_TIMEOUT_S, numbers, print_acked, print_ended, print_failed

if TYPE_CHECKING:
    from asyncio import Future
    from typing import Any


def report(value: str, sent: Future[Any]) -> None:
    error = sent.exception()
    if error is not None:
        print_failed(value, error)
    else:
        print_acked(sent.result().partition, sent.result().offset, value)


async def write() -> None:
    bootstrap, topic, partitions, name, records_per_s = sys.argv[1:]
    # aiokafka gives a record up if it is not delivered within the request timeout.
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=600_000)
    await producer.start()
    each = numbers(float(records_per_s))
    while (number := await asyncio.to_thread(next, each, None)) is not None:
        value = f"{name}.{number}"
        sent = await producer.send(topic, value.encode(), partition=number % int(partitions))
        sent.add_done_callback(partial(report, value))
    await asyncio.wait_for(producer.flush(), FINISH_TIMEOUT_S)
    await producer.stop()
    print_ended(name)


if __name__ == "__main__":
    asyncio.run(write())
