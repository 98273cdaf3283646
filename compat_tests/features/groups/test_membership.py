"""Members come, go, crash, fall silent and come back: the partitions of each afterwards, and every record is read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.features.groups.members import SESSION_TIMEOUT_MS, Member, share
from compat_tests.features.groups.records import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.features.groups.members import Party
    from compat_tests.harness.broker import Broker

    NewParty = Callable[..., Party]

PARTITIONS = 4
ASSIGNORS = {
    "confluent": ("range", "roundrobin", "cooperative-sticky"),
    "kafka_python": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
    "java": ("range", "roundrobin", "sticky", "cooperative-sticky"),
}
CASES = [(client, assignor) for client, assignors in ASSIGNORS.items() for assignor in assignors]
CLIENTS = list(ASSIGNORS)
PATIENT_MS = 25_000  # a session that outlasts how long a process takes to end or to start


def all_seen(count: int, *members: Member) -> None:
    """Waits until the members together have read `count` records of each partition."""
    expected = {f"{partition}/{number}" for partition in range(PARTITIONS) for number in range(count)}

    def is_seen() -> bool:
        return {value for member in members for *_, value in member.seen} == expected

    members[0].wait(is_seen, f"{count} records of each partition were not all read")


@pytest.mark.parametrize(("client", "assignor"), CASES)
def test_join_second_member_leave_and_crash(
    broker: Broker, topic: str, party: NewParty, client: str, assignor: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, PARTITIONS, range(5))
    group = party(client)
    first = group.start(assignor)
    first.owns(PARTITIONS)
    all_seen(5, first)
    second = group.start(assignor, session_timeout_ms=PATIENT_MS)
    share([first, second], [2, 2])
    fill(broker, topic, PARTITIONS, range(5, 10))
    all_seen(10, first, second)
    left_at = time.monotonic()
    second.close()
    first.owns(PARTITIONS)
    assert time.monotonic() - left_at < PATIENT_MS / 1000, "a member that left was waited for"
    third = group.start(assignor)
    share([first, third], [2, 2])
    fill(broker, topic, PARTITIONS, range(10, 15))
    all_seen(15, first, second, third)
    third.crash()
    fill(broker, topic, PARTITIONS, range(15, 20))
    first.owns(PARTITIONS)
    all_seen(20, first, second, third)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_that_does_not_poll_loses_its_partitions_until_it_polls_again(
    broker: Broker, topic: str, party: NewParty, client: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    group = party(client)
    slow, quick = (group.start(max_poll_interval_ms=SESSION_TIMEOUT_MS + 500) for _ in range(2))
    share([slow, quick], [2, 2])
    slow.send_command("idle", seconds=14)
    quick.owns(PARTITIONS)
    assert not slow.events_of("done"), "it was to be busy for longer"
    fill(broker, topic, PARTITIONS, range(5))
    all_seen(5, quick)
    slow.wait(lambda: bool(slow.events_of("done")), "is still busy")
    share([slow, quick], [2, 2])
    fill(broker, topic, PARTITIONS, range(5, 10))
    all_seen(10, slow, quick)


@pytest.mark.parametrize("client", CLIENTS)
def test_static_members_restart_one_by_one_without_a_rebalance(
    broker: Broker, topic: str, party: NewParty, client: str
) -> None:
    create_topic(broker, topic, PARTITIONS)
    group = party(client)
    names = ["a", "b"]
    members = [group.start(group_instance_id=name, session_timeout_ms=PATIENT_MS) for name in names]
    share(members, [2, 2])
    owned = [member.owned for member in members]
    everybody = list(members)
    for index, name in enumerate(names):
        bystander = members[1 - index]
        rebalances = bystander.rebalances
        members[index].crash()
        members[index] = group.start(group_instance_id=name, session_timeout_ms=PATIENT_MS)
        everybody.append(members[index])
        members[index].owns(2)
        fill(broker, topic, PARTITIONS, range(5 * index, 5 * index + 5))
        all_seen(5 * (index + 1), bystander, *everybody)
        assert members[index].owned == owned[index]
        assert bystander.rebalances == rebalances, "a restart of a static member was a rebalance"


@pytest.mark.parametrize("client", CLIENTS)
def test_topics_that_appear_later_are_joined_to_a_pattern(
    broker: Broker, topic: str, party: NewParty, client: str
) -> None:
    create_topic(broker, f"{topic}.one", 2)
    group = party(client, pattern=rf"{topic}\..*")
    # Of two members of kafka-python 3.0.12 that find the topic in turn one may wait for good (kafka_python_member.py).
    members = [group.start() for _ in range(1 if client == "kafka_python" else 2)]
    share(members, [2 // len(members)] * len(members))
    create_topic(broker, f"{topic}.two", 2)
    share(members, [4 // len(members)] * len(members))
    assert {name for name, _ in members[0].owned} == {f"{topic}.one", f"{topic}.two"}
