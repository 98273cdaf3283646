"""Elections one by one, and the exhaustive model of them to a depth that takes seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.cluster import elections
from coordinator.cluster.elections import (
    NO_LOG,
    Electorate,
    preferred,
    reconciled,
    repudiated,
    settled,
    unclean,
    with_isr,
    without_elr,
)
from coordinator.cluster.reassignments import begun
from coordinator.tests import election_model
from coordinator.tests.election_model import Limits, explore

if TYPE_CHECKING:
    from collections.abc import Callable

SERVING, LEAVING, FENCED = BrokerState.SERVING, BrokerState.LEAVING, BrokerState.FENCED
RECOVERING = BrokerState.RECOVERING


def brokers(*states: BrokerState, lives: tuple[int, ...] = (0, 0, 0)) -> Electorate:
    """Of the brokers 1, 2 and 3, with min.insync.replicas 2."""
    infos = {
        number: BrokerInfo(number, (), incarnation=bytes([number, life]), state=state)
        for number, (state, life) in enumerate(zip(states, lives, strict=True), 1)
    }
    return Electorate(infos, min_isr=2)


ALL = brokers(SERVING, SERVING, SERVING)
STATE = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), incarnation=bytes([1, 0]))


def short(state: PartitionState) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr, state.elr


def test_nothing_changes_while_all_serve() -> None:
    assert settled(STATE, ALL) is STATE
    assert preferred(STATE, ALL) is STATE
    assert with_isr(STATE, [3, 2, 1], 2) is STATE


def test_a_follower_that_is_fenced_leaves_the_isr_in_the_same_epoch() -> None:
    assert short(settled(STATE, brokers(SERVING, FENCED, SERVING))) == (1, 5, (1, 3), ())


def test_of_a_leader_that_is_fenced_the_next_replica_in_sync_takes_over() -> None:
    found = settled(STATE, brokers(FENCED, SERVING, SERVING))
    assert short(found) == (2, 6, (2, 3), ())
    assert found.incarnation == bytes([2, 0])


def test_the_order_of_replicas_decides_and_not_that_of_the_isr() -> None:
    assert settled(replace(STATE, replicas=(1, 3, 2)), brokers(FENCED, SERVING, SERVING)).leader == 3


def test_below_min_isr_whoever_leaves_is_in_the_elr_and_may_lead_later() -> None:
    two = settled(STATE, brokers(FENCED, SERVING, SERVING))
    one = settled(two, brokers(FENCED, FENCED, SERVING))
    assert short(one) == (3, 7, (3,), (2,))
    none = settled(one, brokers(FENCED, FENCED, FENCED))
    assert short(none) == (NO_LEADER, 8, (3,), (2,))
    assert none.last_known_leader == 3
    back = settled(none, brokers(SERVING, SERVING, FENCED))
    assert short(back) == (2, 9, (2,), (3,))  # not 1, which has left while enough were in sync
    assert back.last_known_leader == NO_LEADER


def test_with_enough_in_sync_again_nobody_is_in_the_elr() -> None:
    small = replace(STATE, isr=(1,), elr=(2, 3))
    assert short(with_isr(small, [1, 3], 2)) == (1, 5, (1, 3), ())
    assert short(with_isr(small, [1, 3], 3)) == (1, 5, (1, 3), (2,))
    assert without_elr(small).elr == ()


def test_the_elr_goes_by_the_number_of_replicas_when_there_are_fewer() -> None:
    assert with_isr(replace(STATE, replicas=(1, 2), isr=(1, 2)), [1], 1).elr == ()
    assert with_isr(replace(STATE, replicas=(1, 2), isr=(1, 2)), [1], 9).elr == (2,)
    assert with_isr(replace(STATE, replicas=(1, 2), isr=(1,)), [1, 2], 9).elr == ()


def test_the_isr_stays_when_none_of_it_is_up() -> None:
    assert short(settled(STATE, brokers(FENCED, FENCED, FENCED))) == (NO_LEADER, 6, (1, 2, 3), ())


def test_who_leads_in_another_life_leads_in_another_epoch() -> None:
    again = settled(STATE, brokers(SERVING, SERVING, SERVING, lives=(1, 0, 0)))
    assert short(again) == (1, 6, (1, 2, 3), ())
    assert again.incarnation == bytes([1, 1])


def test_a_broker_that_recovers_leads_nothing() -> None:
    assert short(settled(STATE, brokers(RECOVERING, SERVING, SERVING))) == (2, 6, (2, 3), ())
    alone = replace(STATE, replicas=(1,), isr=(1,))
    assert short(settled(alone, brokers(RECOVERING, SERVING, SERVING))) == (NO_LEADER, 6, (1,), ())


def test_a_broker_that_leaves_gives_way_to_another_in_sync() -> None:
    assert short(settled(STATE, brokers(LEAVING, SERVING, SERVING))) == (2, 6, (2, 3), ())


def test_and_leads_on_what_nobody_else_in_sync_can_lead() -> None:
    last = replace(STATE, isr=(1,), elr=(2,))
    assert settled(last, brokers(LEAVING, SERVING, SERVING)) is last
    assert short(settled(STATE, brokers(LEAVING, LEAVING, FENCED))) == (1, 5, (1, 2), ())


def test_the_preferred_replica_leads_once_it_is_in_sync_again() -> None:
    moved = settled(STATE, brokers(FENCED, SERVING, SERVING))
    assert preferred(moved, ALL) is moved
    assert short(preferred(with_isr(moved, [1, 2, 3], 2), ALL)) == (1, 7, (1, 2, 3), ())
    assert preferred(with_isr(moved, [1, 2, 3], 2), brokers(LEAVING, SERVING, SERVING)).leader == 2


def test_an_unclean_election_is_for_want_of_any_other() -> None:
    last = replace(STATE, isr=(1,))
    assert unclean(last, ALL) is last
    found = unclean(last, brokers(FENCED, FENCED, SERVING))
    assert short(found) == (3, 6, (3,), ())
    assert found.unclean_since == 6
    nobody = unclean(last, brokers(FENCED, FENCED, FENCED))
    assert (nobody.leader, nobody.unclean_since) == (NO_LEADER, -1)


def test_who_has_begun_anew_is_elected_uncleanly_for_want_of_any_other_that_has_a_log() -> None:
    """Wherever that has begun: its leader knows where it ends, and not what it has."""
    last = replace(STATE, isr=(1,), marks=((2, -1, 1_000_000),))
    assert unclean(last, brokers(FENCED, SERVING, SERVING)).leader == 3
    assert unclean(last, brokers(FENCED, SERVING, FENCED)).leader == 2
    lost = replace(last, marks=((2, -1, 1_000_000), (3, *NO_LOG)))
    assert unclean(lost, brokers(FENCED, SERVING, SERVING)).leader == 2


def test_of_those_whose_ends_are_known_the_one_with_most_leads() -> None:
    away = settled(STATE, brokers(FENCED, FENCED, FENCED))
    ends = {1: (5, 10), 2: (5, 12), 3: (4, 90)}
    assert settled(away, replace(ALL, ends=ends)).leader == 2
    assert settled(away, ALL).leader == 1


def test_who_doubts_its_log_is_out_of_the_isr_and_the_elr() -> None:
    found = repudiated(STATE, 1, (5, 3), min_isr=2)
    assert (found.isr, found.elr, found.marks) == ((2, 3), (), ((1, 5, 3),))
    small = replace(STATE, isr=(2,), elr=(1, 3), leader=2)
    assert repudiated(small, 1, NO_LOG, min_isr=2).elr == (3,)
    back = with_isr(found, [1, 2, 3], 2)
    assert back.marks == ()


def test_the_last_one_stays_listed_and_is_not_elected_by_itself() -> None:
    last = repudiated(replace(STATE, isr=(1,)), 1, NO_LOG, min_isr=2)
    assert last.isr == (1,)
    serving = brokers(SERVING, SERVING, SERVING, lives=(1, 0, 0))
    assert settled(last, serving).leader == NO_LEADER
    assert reconciled(settled(last, serving), serving).leader == NO_LEADER
    assert short(unclean(last, serving)) == (2, 6, (2,), ())


def test_when_all_are_back_with_a_mark_the_one_that_has_most_leads() -> None:
    state = settled(STATE, brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4)), (3, (4, 9))):
        assert reconciled(state, ALL) is state
        state = repudiated(state, number, end, min_isr=2)
    found = reconciled(state, ALL)
    assert (found.leader, found.isr, found.unclean_since) == (2, (2,), found.leader_epoch)
    assert found.marks == ((1, 5, 3), (3, 4, 9))
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)) is state


def test_whoever_was_not_in_sync_need_not_say_that_it_lacks_something() -> None:
    """As one that had stopped in order before the others died: it never has a doubt."""
    state = settled(replace(STATE, isr=(1, 2)), brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4))):
        assert reconciled(state, ALL) is state
        state = repudiated(state, number, end, min_isr=1)
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)) is state
    assert reconciled(state, ALL).leader == 2
    empty = repudiated(state, 3, NO_LOG, min_isr=1)
    assert reconciled(empty, ALL) is empty


def test_one_that_a_reassignment_adds_may_say_so_too() -> None:
    moving = begun(replace(STATE, isr=(1, 2), replicas=(1, 2)), (1, 3))
    state = settled(moving, brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4)), (3, (5, 9))):
        state = repudiated(state, number, end, min_isr=1)
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)).leader == 2
    assert reconciled(state, ALL).leader == 2
    assert reconciled(state, brokers(SERVING, FENCED, SERVING)) is state


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_no_order_of_few_steps_loses_what_was_acknowledged(min_isr: int, synced: bool) -> None:
    outcome = explore(Limits(synced=synced, min_isr=min_isr), depth=4)
    assert outcome.wrong is None, outcome.way
    assert outcome.states > 3_000


def _elr_kept(state: PartitionState) -> PartitionState:
    return state


def _never_marked(_: PartitionState) -> set[int]:
    return set()


def _anybody(state: PartitionState, electorate: Electorate) -> PartitionState:
    found = settled(state, electorate)
    leader = electorate.best(state.replicas, elections.SERVING)
    if found.leader != NO_LEADER or leader == NO_LEADER:
        return found
    incarnation = electorate.brokers[leader].incarnation
    epoch = found.leader_epoch + (found.leader_epoch == state.leader_epoch)
    return replace(found, leader=leader, leader_epoch=epoch, incarnation=incarnation, isr=(leader,), elr=())


WRONG: dict[str, tuple[str, Callable[..., object], Limits, int]] = {
    "the ELR is kept when fewer are enough": ("without_elr", _elr_kept, Limits(min_isr=2, crashes_max=0), 6),
    "who doubts its log is elected": ("_marked", _never_marked, Limits(min_isr=1), 6),
    "anybody is elected": ("settled", _anybody, Limits(min_isr=1), 6),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_model_sees_what_would_be_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, instead, limits, depth = WRONG[name]
    monkeypatch.setattr(elections, function, instead)
    outcome = explore(limits, depth)
    assert outcome.wrong in ("the leader lacks what was acknowledged", "somebody is in the ELR with a mark")


def test_an_epoch_that_does_not_grow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def led_by(state: PartitionState, leader: int, _: Electorate) -> PartitionState:
        return replace(state, leader=leader)

    monkeypatch.setattr(elections, "_led_by", led_by)
    assert election_model.explore(Limits(), depth=2).wrong == "an epoch with two leaders"
