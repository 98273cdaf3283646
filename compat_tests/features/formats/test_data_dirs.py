"""A data dir of an earlier version has all its data with this version, takes more records, and has those too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import Delivery, commit, create_topic, flush, new_consumer, producer, read
from compat_tests.features.formats.contents import (
    INDEXED,
    INDEXED_KEY,
    KEEPING,
    batches,
    contents_of,
    found_by_key,
    partition_of,
    producer_of,
    send_again,
)
from compat_tests.features.formats.make_data_dirs import DATA_DIRS, unpacked
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.features.formats.contents import Contents

ARCHIVES = sorted(DATA_DIRS.glob("*.tar.xz"))


def places(contents: Contents) -> list[tuple[str, int, dict[str, int]]]:
    """Each partition of the content: topic, number, and reported values."""
    topics = contents["topics"].items()
    return [(name, number, one) for name, topic in topics for number, one in enumerate(topic["partitions"])]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def test_a_data_dir_of_an_earlier_version_is_read_and_takes_more_records(archive: Path) -> None:
    expected = json.loads((archive.parent / archive.name.replace(".tar.xz", ".json")).read_text(encoding="utf-8"))
    with unpacked(archive) as directory, Kafkawire(directory, KEEPING) as broker:
        assert contents_of(broker) == expected
        check_duplicates(broker, expected)
        write_on(broker, expected)
        found = found_by_key(broker)
        assert set(expected["found by key"]) < set(found)
        now = contents_of(broker)
        for orderly in (True, False):
            if orderly:
                assert broker.stop() == 0
            else:
                broker.kill()
            broker.start()
            assert contents_of(broker) == now
        for topic, partition, one in places(expected):
            assert partition_of(broker, topic, partition, one["end"]) == one
            assert read(broker, topic, one["end"], 1, partition)[0].value() == b"written on"


def check_duplicates(broker: Kafkawire, expected: Contents) -> None:
    """Check that producer state is known: a batch that is sent again is answered with its old offset."""
    sent_again = 0
    for topic, partition, one in places(expected):
        *_, last = batches(broker, topic, partition, one["start"], one["end"]) if one["end"] else [b""]
        if last and producer_of(last) >= 0:
            sent_again += 1
            assert send_again(broker, topic, partition, last) == int.from_bytes(last[:8], "big")
    assert sent_again >= 4
    assert contents_of(broker) == expected


def write_on(broker: Kafkawire, expected: Contents) -> None:
    """Write a record to each partition, a commit for each group, and a topic."""
    delivery = Delivery()
    client = producer(broker, acks="all")
    for topic, partition, _ in places(expected):
        client.produce(topic, b"written on", INDEXED_KEY, partition, on_delivery=delivery)
    flush(client)
    assert not delivery.errors
    written = {(one.topic(), one.partition()): one.offset() for one in delivery.messages}
    assert written == {(topic, partition): one["end"] for topic, partition, one in places(expected)}
    for group in expected["groups"]:
        consumer = new_consumer(broker, group_id=group)
        commit(consumer, TopicPartition(INDEXED, 1, 99))
        consumer.close()
    create_topic(broker, "goes", 2)
