from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api import BrokerInfo
from coordinator.controller.placement import place
from coordinator.errors import InvalidReplicationFactor


def brokers(*racks: str | None) -> list[BrokerInfo]:
    return [BrokerInfo(number, (), rack) for number, rack in enumerate(racks, start=1)]


def test_a_single_broker_gets_all_partitions() -> None:
    assert place(3, 1, brokers(None), 0) == [(1,), (1,), (1,)]


def test_leaders_go_round_from_the_start_and_followers_shift_with_every_round() -> None:
    placed = place(6, 2, brokers(None, None, None), 1)
    assert placed == [(2, 3), (3, 1), (1, 2), (2, 1), (3, 2), (1, 3)]


def test_replicas_spread_over_racks() -> None:
    members = brokers("a", "a", "b", "b", "c")
    racks = {member.broker_id: member.rack for member in members}
    for replicas in place(20, 3, members, 3):
        assert {racks[broker_id] for broker_id in replicas} == {"a", "b", "c"}


def test_no_brokers_at_all() -> None:
    with pytest.raises(InvalidReplicationFactor, match="only 0 broker"):
        place(1, 1, [], 0)


@given(
    racks=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=6),
    partition_count=st.integers(1, 40),
    data=st.data(),
)
def test_every_placement_is_legal_and_spreads_leaders_evenly(
    racks: list[str | None], partition_count: int, data: st.DataObject
) -> None:
    members = brokers(*racks)
    factor = data.draw(st.integers(1, len(members)))
    placed = place(partition_count, factor, members, data.draw(st.integers(0, len(members) - 1)))
    assert all(len(replicas) == len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(member.broker_id, 0) for member in members) <= 1
