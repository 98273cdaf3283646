"""Three brokers and one remote tier: none keeps more files than is wanted, and whoever leads has all records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.cluster.test_disks import isr_sizes, lose
from compat_tests.cluster.test_operating import leaders
from compat_tests.cluster.versions import TODAY, Replaceable, cluster
from compat_tests.cluster.writer import numbers_in
from compat_tests.confluent.clients import Admin, Delivery, flush, producer, wait_until
from compat_tests.tiering.brokers import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "t"
SEGMENT_BYTES: Final = 1 << 20  # the least there may be
VALUE_CHARACTERS: Final = 20_000
RECORDS: Final = 300  # six segments
DROPS_WITHIN_S: Final = 60.0
CONFIG: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "min.insync.replicas": "2",
}


@pytest.fixture
def three(tmp_path: Path, connect: str) -> Iterator[list[Replaceable]]:
    tier = {**QUICK, "tier.store": f"file://{tmp_path}/tier", "zookeeper.session.timeout.ms": "4000"}
    with cluster(tmp_path, connect, TODAY, TODAY, TODAY, overrides=tier) as brokers:
        yield brokers


def write(broker: Replaceable, first: int) -> None:
    """As many numbers as there are records, from that one on."""
    delivery = Delivery()
    client = producer(broker, acks="all", enable_idempotence=True)
    for number in range(first, first + RECORDS):
        client.produce(TOPIC, str(number).rjust(VALUE_CHARACTERS), partition=0, on_delivery=delivery)
    flush(client)
    assert delivery.errors == []


def files(broker: Replaceable) -> list[str]:
    return [file.name for file in broker.data_dir.glob(f"{TOPIC}-*/*.log")]


def wait_until_dropped(brokers: list[Replaceable]) -> None:
    """All but the active segment is in the tier alone."""
    wait_until(lambda: [len(files(one)) for one in brokers] == [1] * len(brokers), "files stay", DROPS_WITHIN_S)


def check_read(broker: Replaceable, count: int) -> None:
    assert numbers_in(broker, TOPIC, count, 1) == dict.fromkeys(range(count), 1)


def test_whoever_leads_has_what_no_broker_has_on_its_disk(three: list[Replaceable]) -> None:
    by_id = {broker.broker_id: broker for broker in three}
    Admin(three[0]).create(NewTopic(TOPIC, 1, 3, config=CONFIG))
    wait_until(lambda: isr_sizes(three[0]) == {3}, "not all are in sync")
    write(three[0], 0)
    wait_until_dropped(three)
    check_read(three[0], RECORDS)

    [first] = leaders(three[0], TOPIC)
    by_id[first].kill()
    other = next(broker for broker in three if broker.broker_id != first)
    wait_until(lambda: leaders(other, TOPIC) not in ([first], [-1]), "nobody leads")
    check_read(other, RECORDS)
    write(other, RECORDS)

    lose(by_id[first])
    by_id[first].start()
    wait_until(lambda: isr_sizes(other) == {3}, "it is not in sync again")
    wait_until_dropped(three)
    [second] = leaders(other, TOPIC)
    by_id[second].kill()
    third = next(broker for broker in three if broker.broker_id != second)
    wait_until(lambda: leaders(third, TOPIC) not in ([second], [-1]), "nobody leads")
    check_read(third, 2 * RECORDS)
