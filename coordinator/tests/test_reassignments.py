"""Reassignments of a partition's replicas, and cancellations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, Extent, PartitionState
from coordinator.controller.elections import NO_LOG, Electorate, forced, settled, unclean, with_isr, with_suspect
from coordinator.controller.reassignments import ended, enough_in_sync, is_under_way, reverted, started, wanted
from coordinator.metadata.nodes import decode_partition, encode_partition

BROKERS = {number: BrokerInfo(number, (), incarnation=bytes([number]) * 16) for number in range(1, 7)}
ALL = Electorate(BROKERS)


def state(*replicas: int, isr: tuple[int, ...] = ()) -> PartitionState:
    """A state led by the first replica."""
    incarnation = BROKERS[replicas[0]].incarnation
    return PartitionState(
        replicas[0], 5, isr or replicas, replicas, extents=(Extent(0, replicas),), incarnation=incarnation
    )


def joined(moving: PartitionState, *brokers: int) -> PartitionState:
    return with_isr(moving, {*moving.isr, *brokers}, 1)


def without(*brokers: int) -> Electorate:
    return Electorate({**BROKERS, **{one: replace(BROKERS[one], state=BrokerState.FENCED) for one in brokers}})


def test_all_that_are_to_be_there_are_replicas_at_once_and_in_the_order_that_is_wanted() -> None:
    moving = started(state(1, 2, 3), (4, 2, 5))
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
    assert (moving.leader, moving.leader_epoch, set(moving.isr)) == (1, 5, {1, 2, 3})
    assert moving.extents == (Extent(0, (4, 2, 5, 1, 3)),)
    assert settled(moving, ALL) is moving


def test_a_reassignment_ends_when_all_target_replicas_are_in_sync_and_moves_the_leader() -> None:
    moving = started(state(1, 2, 3), (4, 2, 5))
    half = joined(moving, 4)
    assert ended(half, half.isr) is half
    done = settled(joined(moving, 4, 5), ALL)
    assert (done.replicas, done.isr, done.adding, done.removing) == ((4, 2, 5), (4, 2, 5), (), ())
    assert (done.leader, done.incarnation) == (4, BROKERS[4].incarnation)
    assert done.leader_epoch > 5
    assert decode_partition("", 0, encode_partition(done)) == done


def test_a_leader_that_stays_gets_a_new_epoch_when_a_reassignment_removes_a_replica() -> None:
    done = settled(joined(started(state(1, 2, 3), (1, 2, 4)), 4), ALL)
    assert (done.leader, done.leader_epoch, done.replicas, done.isr) == (1, 6, (1, 2, 4), (1, 2, 4))


def test_a_reassignment_ends_only_when_the_remaining_replicas_are_in_sync_too() -> None:
    moving = started(state(1, 2, 3, isr=(1, 3)), (1, 2, 4))
    assert is_under_way(settled(joined(moving, 4), ALL))
    assert not is_under_way(settled(joined(moving, 4, 2), ALL))


def test_an_isr_that_stays_for_want_of_another_ends_nothing() -> None:
    """A removed replica may then be the only one with all acknowledged records."""
    moving = joined(started(state(1, 2), (4,)), 4)
    away = settled(moving, without(1, 2, 4))
    assert (is_under_way(away), away.leader, set(away.isr)) == (True, NO_LEADER, {1, 2, 4})
    empty = settled(with_suspect(away, 4, NO_LOG, 2), without(1, 2))
    assert (is_under_way(empty), empty.leader) == (True, NO_LEADER)
    back = settled(empty, without(1))
    assert (is_under_way(back), back.leader) == (True, 2)
    assert settled(joined(back, 4), ALL).replicas == (4,)


def test_a_marked_replica_that_is_listed_alone_is_not_enough() -> None:
    """The replicas with all acknowledged records are in the ELR, and away."""
    alone = replace(state(4, 1, 2, isr=(4,)), leader=NO_LEADER, elr=(1, 2), suspect_replicas=((4, -1, -1),))
    moving = settled(started(alone, (4,)), without(1, 2))
    assert (set(moving.replicas), moving.elr, moving.leader) == ({1, 2, 4}, (1, 2), NO_LEADER)
    back = settled(moving, without(2))
    assert (back.leader, back.isr) == (1, (1,))
    assert settled(joined(back, 4), without(2)).replicas == (4,)


def test_a_reassignment_without_added_replicas_ends_at_once_if_all_are_in_sync() -> None:
    ordered = settled(started(state(1, 2, 3), (3, 1, 2)), ALL)
    assert (ordered.replicas, ordered.leader, ordered.leader_epoch) == ((3, 1, 2), 1, 5)
    fewer = settled(started(state(1, 2, 3), (3, 2)), ALL)
    assert (fewer.replicas, fewer.leader, fewer.isr) == ((3, 2), 3, (3, 2))
    late = settled(started(state(1, 2, 3, isr=(1, 3)), (3, 2)), ALL)
    assert (late.replicas, late.removing, late.leader) == ((3, 2, 1), (1,), 1)


def test_a_leader_that_was_alone_or_is_then_begins_an_epoch() -> None:
    moving = started(state(1), (1, 2))
    assert (moving.leader, moving.leader_epoch) == (1, 6)
    more = settled(joined(moving, 2), ALL)
    assert (more.leader_epoch, more.replicas, more.isr) == (6, (1, 2), (1, 2))
    assert settled(started(more, (1,)), ALL).leader_epoch == 7


def test_a_reassignment_to_its_present_target_changes_nothing() -> None:
    first = state(1, 2, 3)
    assert started(first, (1, 2, 3)) is first
    moving = started(first, (1, 2, 4))
    assert started(moving, (1, 2, 4)) is moving


def test_an_overridden_reassignment_goes_to_the_last_target_or_back_to_the_start() -> None:
    moving = started(started(state(1, 2, 3), (1, 2, 4)), (1, 2, 5))
    assert (moving.replicas, moving.adding, moving.removing) == ((1, 2, 5, 3, 4), (4, 5), (3, 4))
    assert settled(joined(moving, 4, 5), ALL).replicas == (1, 2, 5)
    assert set(reverted(moving).replicas) == {1, 2, 3}
    back = settled(started(started(state(1, 2, 3), (1, 2, 4)), (1, 2, 3)), ALL)
    assert (back.replicas, back.leader, is_under_way(back)) == ((1, 2, 3), 1, False)


def test_a_cancellation_returns_to_the_old_replicas_and_the_rest_of_their_isr() -> None:
    moving = joined(started(state(1, 2, 3), (4, 5)), 4)
    back = settled(reverted(with_isr(moving, {2, 4}, 1)), ALL)
    assert (set(back.replicas), back.isr, back.leader, is_under_way(back)) == ({1, 2, 3}, (2,), 2, False)


def test_a_cancellation_leaves_an_empty_isr_if_only_added_replicas_are_in_sync() -> None:
    moving = joined(started(state(1, 2), (3, 1)), 3)
    alone = settled(with_isr(moving, {3}, 1), without(1, 2))
    assert alone.leader == 3
    back = reverted(alone)
    assert back.isr == ()
    assert forced(back, without(1, 2)) is None
    found = forced(back, without(1))
    assert found is not None
    assert (found.leader, found.isr, found.unclean_since) == (2, (2,), found.leader_epoch)


def test_added_replicas_do_not_count_for_min_isr_before_the_reassignment_ends() -> None:
    one, moving = state(1), started(state(1), (1, 2, 3))
    assert enough_in_sync(one, 2) == enough_in_sync(moving, 2) == 1
    assert enough_in_sync(settled(joined(moving, 2, 3), ALL), 2) == 2
    assert with_isr(started(state(1, 2), (1, 2, 3)), {1}, 2).elr == (2,)


def test_an_added_replica_is_elected_uncleanly_only_if_no_old_replica_is_up() -> None:
    lost = replace(started(state(1, 2, isr=(1,)), (3, 4)), leader=-1)
    assert unclean(lost, without(1)).leader == 2
    assert unclean(lost, without(1, 2)).leader == 3


def test_suspect_elr_and_offline_entries_of_removed_replicas_are_removed_too() -> None:
    moving = replace(
        started(state(1, 2, 3, isr=(1,)), (1, 4)), elr=(2,), suspect_replicas=((2, 0, 9), (3, 0, 7)), offline=(2,)
    )
    done = settled(joined(moving, 4), ALL)
    assert (done.replicas, done.elr, done.suspect_replicas, done.offline) == ((1, 4), (), (), ())


REPLICAS = st.permutations(range(1, 7)).flatmap(lambda found: st.integers(1, 4).map(lambda size: tuple(found[:size])))
STEPS = st.lists(
    st.one_of(
        REPLICAS.map(lambda replicas: ("begin", replicas)),
        st.sets(st.integers(1, 6)).map(lambda brokers: ("in sync", tuple(brokers))),
        st.sets(st.integers(1, 6), max_size=5).map(lambda brokers: ("down", tuple(brokers))),
        st.just(("cancel", ())),
    ),
    max_size=12,
)


@pytest.mark.parametrize("min_isr", [1, 2])
@given(first=REPLICAS, steps=STEPS)
def test_any_sequence_keeps_a_replica_in_sync_and_ends_at_the_last_target(
    min_isr: int, first: tuple[int, ...], steps: list[tuple[str, tuple[int, ...]]]
) -> None:
    now, electorate, target, before = state(*first), replace(ALL, min_isr=min_isr), first, set(first)
    for what, brokers in steps:
        epoch = now.leader_epoch
        if what == "begin":
            now, target = started(now, brokers), brokers
        elif what == "in sync" and now.leader in now.isr:
            now = with_isr(now, {now.leader, *brokers} & {*now.replicas}, min_isr)
        elif what == "cancel" and is_under_way(now) and (back := reverted(now)).isr:
            now, target = back, back.replicas
        elif what == "down":
            electorate = replace(without(*brokers), min_isr=min_isr)
        held = {*now.isr}
        now = settled(now, electorate)
        assert {*now.isr} <= held | {*now.elr} | ({now.leader} if held.isdisjoint(now.isr) else set())
        assert now.isr
        assert {*now.isr, *now.elr} <= {*now.replicas}
        assert now.leader in {*now.isr, -1}
        assert now.leader_epoch >= epoch
        assert now.extents[-1].replicas == now.replicas
        assert wanted(now) == target
        if not is_under_way(now):
            assert now.replicas == target
            before = {*target}
        assert {*now.replicas} - {*now.adding} == before
    now = settled(with_isr(replace(now, suspect_replicas=()), now.replicas, min_isr), replace(ALL, min_isr=min_isr))
    assert (now.replicas, is_under_way(now), now.leader in target) == (target, False, True)
