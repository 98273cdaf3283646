"""The memory that a group keeps of new members is bounded."""

from __future__ import annotations

import pytest

from coordinator.groups.api import Join, MemberProtocol
from coordinator.groups.members import CLIENT_ID_IN_ID_MAX, ExpectedMembers, name_in_id


def test_the_oldest_expected_member_ids_are_dropped_beyond_the_limit() -> None:
    expected = ExpectedMembers(2)
    for number in range(4):
        expected.add(str(number), number)
    assert expected == {"2": 2, "3": 3}


@pytest.mark.parametrize(("instance_id", "longest"), [(None, CLIENT_ID_IN_ID_MAX), ("i" * 32_767, 2**15 - 38)])
def test_a_long_name_makes_no_id_that_is_too_long(instance_id: str | None, longest: int) -> None:
    protocols = (MemberProtocol("range", b""),)
    join = Join("", instance_id, "c" * 32_767, "/h", "consumer", protocols, 10_000, 60_000)
    assert len(name_in_id(join)) == longest
