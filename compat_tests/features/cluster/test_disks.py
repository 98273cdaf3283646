"""Brokers that come back without their disks, as docs/operating/failures.md describes them."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.clients.confluent.clients import Admin, create_topic, wait_until, wait_until_whole
from compat_tests.features.cluster.test_operating import PARTITIONS, RECORDS, leaders, write
from compat_tests.features.cluster.versions import TODAY, Replaceable, cluster
from compat_tests.features.cluster.writer import Writer, numbers_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "t"
WAITS_S = 5.0


@pytest.fixture
def three(tmp_path: Path, connect: str) -> Iterator[list[Replaceable]]:
    with cluster(tmp_path, connect, TODAY, TODAY, TODAY) as brokers:
        yield brokers


def create_replicated(broker: Replaceable) -> None:
    Admin(broker).create(NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"}))
    wait_until_whole(broker, TOPIC)


def lose(broker: Replaceable) -> None:
    """Delete the data of a broker whose process has ended."""
    shutil.rmtree(broker.data_dir)


def segments(broker: Replaceable) -> dict[str, bytes]:
    """The segment files of the topic on a broker, by partition and file."""
    files = sorted(broker.data_dir.glob(f"{TOPIC}-*/*.log"))
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


def check_equal(brokers: list[Replaceable]) -> None:
    """Check that the files are equal byte for byte, once the brokers have stopped in order."""
    for broker in brokers:
        assert broker.stop() == 0, broker.log_tail()
    first, *others = map(segments, brokers)
    assert [one == first for one in others] == [True, True]


def test_a_broker_with_a_replaced_disk_copies_all_records_from_other_brokers(three: list[Replaceable]) -> None:
    one, two, _ = three
    create_replicated(one)
    with Writer(one, TOPIC) as writer:
        wait_until(lambda: len(writer.delivery.messages) > RECORDS, "nothing is written")
        two.kill()
        lose(two)
        before = len(writer.delivery.messages)
        wait_until(lambda: len(writer.delivery.messages) > before + RECORDS, "nothing is written without it")
        two.start()
        wait_until_whole(one, TOPIC, "it is not in sync again")
    assert writer.delivery.errors == []
    written = len(writer.delivery.messages)
    assert numbers_in(two, TOPIC, written, PARTITIONS) == dict.fromkeys(range(written), 1)
    check_equal(three)


def test_after_all_brokers_died_a_broker_without_its_disk_is_not_elected(three: list[Replaceable]) -> None:
    one, two, other = three
    create_replicated(two)
    assert write(two, TOPIC).errors == []
    for broker in three:
        broker.kill()
    lose(one)
    one.start()
    wait_until(lambda: leaders(one, TOPIC) == [-1] * PARTITIONS, "somebody leads")
    time.sleep(WAITS_S)
    assert leaders(one, TOPIC) == [-1] * PARTITIONS
    two.start()
    wait_until(lambda: leaders(one, TOPIC) == [2] * PARTITIONS, "it does not lead")
    other.start()
    wait_until_whole(one, TOPIC, "not all are in sync again")
    assert numbers_in(one, TOPIC, RECORDS, PARTITIONS) == dict.fromkeys(range(RECORDS), 1)
    assert write(one, TOPIC).errors == []
    check_equal(three)


def test_an_unreplicated_partition_waits_for_its_disk_or_an_unclean_election(three: list[Replaceable]) -> None:
    one, two, _ = three
    create_topic(one, TOPIC, PARTITIONS)
    assert write(one, TOPIC).errors == []
    before = leaders(one, TOPIC)
    two.kill()
    kept = two.data_dir.rename(two.directory / "kept")
    two.start()
    without = [-1 if leader == 2 else leader for leader in before]
    wait_until(lambda: leaders(one, TOPIC) == without, "it leads")
    two.kill()
    lose(two)
    kept.rename(two.data_dir)
    two.start()
    wait_until(lambda: leaders(one, TOPIC) == before, "it does not lead again with its disk")
    assert numbers_in(one, TOPIC, RECORDS, PARTITIONS) == dict.fromkeys(range(RECORDS), 1)

    two.kill()
    lose(two)
    two.start()
    wait_until(lambda: leaders(one, TOPIC) == without, "it leads")
    Admin(one).alter_config(TOPIC, "unclean.leader.election.enable", "true")
    wait_until(lambda: leaders(one, TOPIC) == before, "it does not lead by order")
    left = {number for number in range(RECORDS) if before[number % PARTITIONS] != 2}
    assert {*numbers_in(one, TOPIC, len(left), PARTITIONS)} == left
    assert write(one, TOPIC).errors == []
