"""Checks after a campaign: the records that the broker serves, its files, and the objects in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import TIMEOUT_S, new_consumer, watermarks
from compat_tests.faults.history import Found, Place
from compat_tests.faults.writers import padded, unpadded
from compat_tests.features.object_stores.clients import store_at
from compat_tests.features.tiering.bucket import Bucket, examine
from compat_tests.features.tiering.tiers import ROOT

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from compat_tests.faults.history import History
    from compat_tests.harness.kafkawire_broker import Kafkawire


def segment_files(broker: Kafkawire, topic: str) -> int:
    return len([*broker.data_dir.glob(f"{topic}-*/*.log")])


def examined(server: str, bucket: str) -> Bucket:
    store = store_at(server, bucket)
    try:
        return trio.run(examine, store, f"{ROOT}/")
    finally:
        store.close()


def read_back(broker: Kafkawire, topic: str, partitions: int, history: History) -> list[str]:
    """Compare the acknowledged records from the log start on with the log. Returns the anomalies."""
    consumer = new_consumer(broker, check_crcs=True)
    try:
        found: list[Found] = []
        starts = {}
        for partition in range(partitions):
            starts[partition] = _read(consumer, topic, partition, found)
    finally:
        consumer.close()
    history.acked = [each for each in history.acked if each.place.offset >= starts[each.place.partition]]
    return history.check(found, starts)


def _read(consumer: Consumer, topic: str, partition: int, found: list[Found]) -> int:
    """Read all records of a partition onto `found`, and return the first offset. If retention deletes the first records
    meanwhile, the read begins again."""
    for _ in range(10):
        first, end = watermarks(consumer, TopicPartition(topic, partition))
        consumer.assign([TopicPartition(topic, partition, first)])
        read: list[Found] = []
        while first + len(read) < end:
            messages = consumer.consume(min(10_000, end - first), TIMEOUT_S)
            assert messages, f"{topic}-{partition} ends at {end}, reads stop behind {read[-1:]}"
            if first and messages[0].error() is not None:
                break
            for message in messages:
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                text = unpadded(value.decode())
                assert padded(text) == value.decode(), f"{offset} of {topic}-{partition} has other bytes than were sent"
                read.append(Found(Place(partition, offset), text))
        else:
            found += read
            return first
    raise AssertionError(f"{topic}-{partition} has gone whenever it was to be read")
