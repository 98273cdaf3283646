"""Three brokers and one remote tier: no broker has more files than configured, and each leader has all records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.clients.confluent.clients import Admin, Delivery, flush, producer, wait_until, wait_until_whole
from compat_tests.features.cluster.test_disks import lose
from compat_tests.features.cluster.test_operating import leaders
from compat_tests.features.cluster.versions import TODAY, Replaceable, cluster
from compat_tests.features.cluster.writer import numbers_in
from compat_tests.features.tiering.brokers import IN_TIER, QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "t"
SEGMENT_BYTES: Final = 1 << 20  # the least there may be
VALUE_CHARACTERS: Final = 20_000
RECORDS: Final = 300  # six segments
DROPS_WITHIN_S: Final = 60.0
CONFIG: Final = {**IN_TIER, "segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"}


@pytest.fixture
def three(tmp_path: Path, connect: str) -> Iterator[list[Replaceable]]:
    tier = {**QUICK, "tier.store": f"file://{tmp_path}/tier", "zookeeper.session.timeout.ms": "4000"}
    with cluster(tmp_path, connect, TODAY, TODAY, TODAY, overrides=tier) as brokers:
        yield brokers


def write(broker: Replaceable, first: int) -> None:
    """Write `RECORDS` numbers, from `first` on."""
    delivery = Delivery()
    client = producer(broker, acks="all", enable_idempotence=True)
    for number in range(first, first + RECORDS):
        client.produce(TOPIC, str(number).rjust(VALUE_CHARACTERS), partition=0, on_delivery=delivery)
    flush(client)
    assert delivery.errors == []


def files(broker: Replaceable) -> list[str]:
    return [file.name for file in broker.data_dir.glob(f"{TOPIC}-*/*.log")]


def wait_until_dropped(brokers: list[Replaceable]) -> None:
    """Wait until all segments but the active one are only in the tier."""
    wait_until(lambda: [len(files(one)) for one in brokers] == [1] * len(brokers), "files stay", DROPS_WITHIN_S)


def check_read(broker: Replaceable, count: int) -> None:
    assert numbers_in(broker, TOPIC, count, 1) == dict.fromkeys(range(count), 1)


def kill_leader(brokers: list[Replaceable]) -> tuple[Replaceable, Replaceable]:
    """Kill the leader, and wait for another one. Returns the killed broker and one of the others."""
    [leader] = leaders(brokers[0], TOPIC)
    killed = next(broker for broker in brokers if broker.broker_id == leader)
    other = next(broker for broker in brokers if broker is not killed)
    killed.kill()
    wait_until(lambda: leaders(other, TOPIC) not in ([leader], [-1]), "nobody leads")
    return killed, other


def test_each_new_leader_serves_records_that_only_the_remote_tier_has(three: list[Replaceable]) -> None:
    Admin(three[0]).create(NewTopic(TOPIC, 1, 3, config=CONFIG))
    wait_until_whole(three[0], TOPIC)
    write(three[0], 0)
    wait_until_dropped(three)
    check_read(three[0], RECORDS)

    killed, other = kill_leader(three)
    check_read(other, RECORDS)
    write(other, RECORDS)

    lose(killed)
    killed.start()
    wait_until_whole(other, TOPIC, "it is not in sync again")
    wait_until_dropped(three)
    _, third = kill_leader(three)
    check_read(third, 2 * RECORDS)
