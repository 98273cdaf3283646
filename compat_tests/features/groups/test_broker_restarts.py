"""The broker stops or dies under an active group: every record is read, and no acknowledged commit goes back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from compat_tests.clients.confluent.clients import Delivery, create_topic, flush, producer
from compat_tests.features.groups.conftest import QUICK_GROUPS
from compat_tests.features.groups.members import Party
from compat_tests.features.groups.test_membership import CLIENTS
from compat_tests.features.restart.restarts import restart
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.features.groups.members import Member
    from compat_tests.harness.broker import Broker
    from compat_tests.harness.host import Host

PARTITIONS = 4
TOPIC = "read-through-restarts"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone, which may be stopped and killed."""
    with target_broker(tmp_path, QUICK_GROUPS) as running:
        yield running


class Writer:
    """A producer of numbered records, until it is finished; it retries over every restart."""

    def __init__(self, broker: Broker) -> None:
        self._client = producer(broker, acks="all", enable_idempotence=True)
        self._delivery = Delivery()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._over.wait(0.005):
            self._client.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._delivery)
            self._client.poll(0)
            number += 1

    def finish(self) -> set[str]:
        """Stop the producer and return the acknowledged values. Asserts that all records were acknowledged."""
        self.__exit__()
        flush(self._client)
        assert not self._delivery.errors
        return {message.value().decode() for message in self._delivery.messages}


def committed(*members: Member) -> dict[int, int]:
    """The greatest offset of each partition whose commit was acknowledged."""
    found: dict[int, int] = {}
    for member in members:
        for event in member.events_of("committed"):
            for _, partition, offset in event["offsets"]:
                found[partition] = max(offset, found.get(partition, 0))
    return found


def has_gone_on(member: Member) -> Callable[[], bool]:
    """Whether the group has committed something since."""
    before = len(member.events_of("committed"))
    return lambda: len(member.events_of("committed")) > before


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_skipped(own_broker: Broker, java: Callable[[], Host], client: str) -> None:
    create_topic(own_broker, TOPIC, PARTITIONS)
    with Party(own_broker, client, "readers", TOPIC, java=java) as group, Writer(own_broker) as writer:
        members = [group.start(), group.start()]
        for member in members:
            member.wait(has_gone_on(member), "reads nothing")
        for orderly in (True, False):
            time.sleep(0.3)  # the restart shall come at no particular moment
            restart(own_broker, orderly=orderly)
            for member in members:
                member.wait(has_gone_on(member), "reads no further after the restart")
        written = writer.finish()
        members[0].wait(
            lambda: {value for member in members for *_, value in member.seen} >= written, "not every record was read"
        )
        members[0].wait(lambda: sum(committed(*members).values()) == len(written), "not all is committed")
        answered = committed(*members)
        before = [len(member.seen) for member in members]
        restart(own_broker, orderly=False)
        for partition, offset in answered.items():
            stored, note = members[0].ask("committed", partitions=[(TOPIC, partition)])
            assert stored >= offset, "a commit that was answered is gone"
            assert note == "read"
        assert [len(member.seen) for member in members] == before, "records were read again: commits were gone"
