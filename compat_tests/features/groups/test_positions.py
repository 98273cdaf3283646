"""Where a member reads: pause and resume, seek, offsets committed with a note and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.features.groups.records import fill
from compat_tests.features.groups.test_membership import CLIENTS, PATIENT_MS

if TYPE_CHECKING:
    from compat_tests.features.groups.members import Member
    from compat_tests.features.groups.test_membership import NewParty
    from compat_tests.harness.broker import Broker


def values(member: Member, partition: int) -> list[int]:
    return [int(value.partition("/")[2]) for _, its, _, value in member.seen if its == partition]


def reads(member: Member, partition: int, expected: list[int]) -> None:
    member.wait(lambda: values(member, partition) == expected, f"partition {partition}: not {expected}")


@pytest.mark.parametrize("client", CLIENTS)
def test_pause_resume_seek_and_notes(broker: Broker, topic: str, party: NewParty, client: str) -> None:
    create_topic(broker, topic, 2)
    fill(broker, topic, 2, range(3))
    group = party(client)
    member = group.start(session_timeout_ms=PATIENT_MS)
    reads(member, 0, [0, 1, 2])
    reads(member, 1, [0, 1, 2])
    member.ask("pause", partitions=[(topic, 0)])
    fill(broker, topic, 2, range(3, 5))
    reads(member, 1, [0, 1, 2, 3, 4])
    assert values(member, 0) == [0, 1, 2], "a paused partition was read"
    assert member.ask("committed", partitions=[(topic, 0)]) == [3, "read"]
    member.ask("resume", partitions=[(topic, 0)])
    reads(member, 0, [0, 1, 2, 3, 4])
    member.ask("seek", partitions=[(topic, 1)], offset=4)
    reads(member, 1, [0, 1, 2, 3, 4, 4])
    member.wait(
        lambda: member.events_of("committed")[-1]["offsets"] == [[topic, 1, 5]], "what was read is not committed"
    )
    member.ask("commit", partitions=[(topic, 0)], offset=2, metadata="Lesezeichen: ½ gelesen")
    member.close()
    successor = group.start(session_timeout_ms=PATIENT_MS)
    reads(successor, 0, [2, 3, 4])
    successor.ask("commit", partitions=[(topic, 0)], offset=1, metadata="Lesezeichen: ½ gelesen")
    assert successor.ask("committed", partitions=[(topic, 0)]) == [1, "Lesezeichen: ½ gelesen"]
    assert successor.ask("committed", partitions=[(topic, 1)]) == [5, "read"]
    assert values(successor, 1) == [], "what was committed was read again"
