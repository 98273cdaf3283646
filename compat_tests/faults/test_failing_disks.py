"""Disks that are full, turn read-only or stop answering: appends get an error, and are never half done (RULES L4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients.confluent.clients import (
    Delivery,
    create_topic,
    flush,
    producer,
    read,
    wait_until,
    watermarks,
    with_consumer,
)
from compat_tests.faults.disk_faults import LEAVES_WITHIN_S, stops_on_full_disk
from compat_tests.faults.loop_image import LoopImage
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPIC = "kept"
STORAGE_ERROR = "KAFKA_STORAGE_ERROR"
# Errors of a failed log dir: a producer that sends at that moment is told; later producers wait for a leader.
WITHOUT_LEADER = {STORAGE_ERROR, "NOT_LEADER_FOR_PARTITION", "_MSG_TIMED_OUT"}
IMAGE_SIZE_MIB = 96
JOURNAL = {"journal.slot.bytes": "65536"}  # only the test takes space in large pieces
SMALL_SIZE_BYTES = 1_000  # few enough a second that the broker looks at its space before they have filled it
LARGE_SIZE_BYTES = 20_000
ANSWERED_WITHIN_MS = 10_000  # also by a disk that is slow
WITHOUT_ANSWER_MS = 2_000  # for partitions that have no leader any more


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopImage]:
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as mounted:
        yield mounted


class Writer:
    """A producer that sends one record at a time, without retries, and remembers the acknowledged records."""

    def __init__(self, broker: Kafkawire, partitions: int = 1) -> None:
        self._broker = broker
        self._number = 0
        self._acked: list[list[bytes]] = [[] for _ in range(partitions)]
        create_topic(broker, TOPIC, partitions)

    def write(
        self, partition: int = 0, size_bytes: int = SMALL_SIZE_BYTES, timeout_ms: int = ANSWERED_WITHIN_MS
    ) -> str:
        """Write a record. Returns the name of the error, or an empty text."""
        delivery = Delivery()
        client = producer(self._broker, acks="all", retries=0, message_timeout_ms=timeout_ms, linger_ms=0)
        value = f"{self._number}".encode().ljust(size_bytes, b".")
        self._number += 1
        client.produce(TOPIC, value, partition=partition, on_delivery=delivery)
        flush(client)
        if delivery.errors:
            return str(delivery.errors[0].name())
        self._acked[partition].append(value)
        return ""

    def check(self, partition: int = 0) -> None:
        """Check that all acknowledged records are there, in order, and no others."""
        expected = self._acked[partition]
        assert expected
        found = read(self._broker, TOPIC, 0, len(expected), partition)
        assert [message.value() for message in found] == expected
        where = TopicPartition(TOPIC, partition)
        ends = with_consumer(self._broker, lambda consumer: watermarks(consumer, where))
        assert ends == (0, len(expected))


def test_a_disk_that_is_nearly_full_takes_nothing_and_comes_back(tmp_path: Path, disk: LoopImage) -> None:
    with Kafkawire(tmp_path / "broker", {"log.dirs": str(disk.mount_point / "data"), **JOURNAL}) as broker:
        writer = Writer(broker)
        assert writer.write() == ""
        disk.fill((IMAGE_SIZE_MIB << 20) // 33)
        wait_until(lambda: writer.write() == STORAGE_ERROR, "a disk that is nearly full takes records")
        writer.check()
        disk.empty()
        wait_until(lambda: writer.write() == "", "space that was freed is not used")
        writer.check()


def test_a_full_disk_loses_nothing(tmp_path: Path, disk: LoopImage) -> None:
    """A full disk loses no record. The broker has no warning before the kernel's error, which may come after half a
    record."""
    overrides = {"log.dirs": str(disk.mount_point / "data"), "disk.reject.ratio": "1", **JOURNAL}
    with Kafkawire(tmp_path / "broker", overrides) as broker:
        writer = Writer(broker)
        assert writer.write() == ""
        disk.fill(10 * LARGE_SIZE_BYTES)
        outcomes = (writer.write(size_bytes=LARGE_SIZE_BYTES) for _ in range(50))
        assert next(filter(None, outcomes), None) == STORAGE_ERROR
        if stops_on_full_disk(broker):
            assert broker.log_path.read_text().count("the last log dir went offline") == 1
            assert "Traceback" not in broker.log_path.read_text()
            disk.empty()
            broker.start()
        else:
            writer.check()
            disk.empty()
        writer.check()
        assert writer.write() == ""
        writer.check()


@pytest.mark.parametrize("fail", [LoopImage.make_read_only, LoopImage.shut_down], ids=["read-only", "EIO"])
def test_the_last_log_dir_takes_the_broker_with_it(
    tmp_path: Path, disk: LoopImage, fail: Callable[[LoopImage], None]
) -> None:
    with Kafkawire(tmp_path / "broker", {"log.dirs": str(disk.mount_point / "data"), **JOURNAL}) as broker:
        writer = Writer(broker)
        assert writer.write() == ""
        said_before = broker.log_path.read_text()
        fail(disk)
        assert writer.write(timeout_ms=WITHOUT_ANSWER_MS) != ""
        assert broker.leaves_within(LEAVES_WITHIN_S)
        said = broker.log_path.read_text().removeprefix(said_before)
        assert "Traceback" not in said
        (line,) = [line for line in said.splitlines() if "the last log dir went offline" in line]
        assert str(disk.mount_point) in line
        disk.unmount()
        disk.mount()
        broker.start()
        writer.check()
        assert writer.write() == ""
        writer.check()


def test_one_log_dir_of_two_goes_offline_alone(tmp_path: Path, disk: LoopImage) -> None:
    partitions = 4
    overrides = {"log.dirs": f"{tmp_path / 'data'},{disk.mount_point / 'data'}"}
    with Kafkawire(tmp_path / "broker", overrides) as broker:
        writer = Writer(broker, partitions)
        for partition in range(partitions):
            assert writer.write(partition) == ""
        on_disk = {
            partition for partition in range(partitions) if (disk.mount_point / f"data/{TOPIC}-{partition}").exists()
        }
        assert 0 < len(on_disk) < partitions
        disk.shut_down()
        for _ in range(2):
            for partition in range(partitions):
                if partition in on_disk:
                    assert writer.write(partition, timeout_ms=WITHOUT_ANSWER_MS) in WITHOUT_LEADER
                else:
                    assert writer.write(partition) == ""
        for partition in set(range(partitions)) - on_disk:
            writer.check(partition)
        broker.kill()
        disk.unmount()
        disk.mount()
        broker.start()
        for partition in range(partitions):
            writer.check(partition)
            assert writer.write(partition) == ""
            writer.check(partition)


def test_space_that_was_given_back_stays_so_through_a_power_cut(tmp_path: Path) -> None:
    """Test of the image itself: if freed space were taken again by a power cut, later tests could not write."""
    with LoopImage(tmp_path / "disk", IMAGE_SIZE_MIB) as disk:
        disk.fill(1 << 20)
        disk.sync()
        disk.empty()
        disk.shut_down()
        disk.unmount()
        disk.mount()
        assert [one.name for one in disk.mount_point.iterdir()] == ["lost+found"]
