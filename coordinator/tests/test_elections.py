"""Elections one by one, and the exhaustive model of them to a depth that takes seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.controller import elections
from coordinator.controller.elections import (
    NO_LOG,
    Electorate,
    not_serving,
    preferred,
    reconciled,
    recounted,
    serving,
    settled,
    unclean,
    with_isr,
    with_suspect,
    without_elr,
)
from coordinator.controller.reassignments import started
from coordinator.tests.election_model import Limits
from coordinator.tests.election_search import STUCK, explore

if TYPE_CHECKING:
    from collections.abc import Callable

SERVING, LEAVING, FENCED = BrokerState.SERVING, BrokerState.LEAVING, BrokerState.FENCED
RECOVERING = BrokerState.RECOVERING


def brokers(*states: BrokerState, lives: tuple[int, ...] = (0, 0, 0)) -> Electorate:
    """An electorate of the brokers 1, 2 and 3, with min.insync.replicas 2."""
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


def test_the_next_replica_in_sync_leads_after_the_leader_is_fenced() -> None:
    found = settled(STATE, brokers(FENCED, SERVING, SERVING))
    assert short(found) == (2, 6, (2, 3), ())
    assert found.incarnation == bytes([2, 0])


def test_the_order_of_replicas_decides_and_not_that_of_the_isr() -> None:
    assert settled(replace(STATE, replicas=(1, 3, 2)), brokers(FENCED, SERVING, SERVING)).leader == 3


def test_replicas_that_leave_below_min_isr_enter_the_elr_and_may_lead_later() -> None:
    two = settled(STATE, brokers(FENCED, SERVING, SERVING))
    one = settled(two, brokers(FENCED, FENCED, SERVING))
    assert short(one) == (3, 7, (3,), (2,))
    none = settled(one, brokers(FENCED, FENCED, FENCED))
    assert short(none) == (NO_LEADER, 8, (3,), (2,))
    assert none.last_known_leader == 3
    back = settled(none, brokers(SERVING, SERVING, FENCED))
    assert short(back) == (2, 9, (2,), (3,))  # not 1, which has left while enough were in sync
    assert back.last_known_leader == NO_LEADER


def test_the_elr_is_emptied_when_enough_replicas_are_in_sync() -> None:
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


def test_a_leader_with_another_incarnation_leads_in_another_epoch() -> None:
    again = settled(STATE, brokers(SERVING, SERVING, SERVING, lives=(1, 0, 0)))
    assert short(again) == (1, 6, (1, 2, 3), ())
    assert again.incarnation == bytes([1, 1])


def test_a_broker_that_recovers_leads_nothing() -> None:
    assert short(settled(STATE, brokers(RECOVERING, SERVING, SERVING))) == (2, 6, (2, 3), ())
    alone = replace(STATE, replicas=(1,), isr=(1,))
    assert short(settled(alone, brokers(RECOVERING, SERVING, SERVING))) == (NO_LEADER, 6, (1,), ())


def test_a_broker_that_leaves_gives_way_to_another_in_sync() -> None:
    assert short(settled(STATE, brokers(LEAVING, SERVING, SERVING))) == (2, 6, (2, 3), ())


def test_a_broker_that_leaves_leads_on_if_no_other_replica_in_sync_can_lead() -> None:
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
    unled = unclean(last, brokers(FENCED, FENCED, FENCED))
    assert (unled.leader, unled.unclean_since) == (NO_LEADER, -1)


def test_a_replica_that_restarted_its_copy_is_elected_uncleanly_only_without_any_other_log() -> None:
    """The offset at which its new log has begun does not matter: it says nothing about the records that it has."""
    last = replace(STATE, isr=(1,), suspect_replicas=((2, -1, 1_000_000),))
    assert unclean(last, brokers(FENCED, SERVING, SERVING)).leader == 3
    assert unclean(last, brokers(FENCED, SERVING, FENCED)).leader == 2
    lost = replace(last, suspect_replicas=((2, -1, 1_000_000), (3, *NO_LOG)))
    assert unclean(lost, brokers(FENCED, SERVING, SERVING)).leader == 2


def test_the_replica_with_the_longest_known_log_leads() -> None:
    away = settled(STATE, brokers(FENCED, FENCED, FENCED))
    ends = {1: (5, 10), 2: (5, 12), 3: (4, 90)}
    assert settled(away, replace(ALL, ends=ends)).leader == 2
    assert settled(away, ALL).leader == 1


def test_a_suspect_replica_leaves_the_isr_and_the_elr() -> None:
    found = with_suspect(STATE, 1, (5, 3), min_isr=2)
    assert (found.isr, found.elr, found.suspect_replicas) == ((2, 3), (), ((1, 5, 3),))
    small = replace(STATE, isr=(2,), elr=(1, 3), leader=2)
    assert with_suspect(small, 1, NO_LOG, min_isr=2).elr == (3,)
    back = with_isr(found, [1, 2, 3], 2)
    assert back.suspect_replicas == ()


def test_the_last_one_stays_listed_and_is_not_elected_by_itself() -> None:
    last = with_suspect(replace(STATE, isr=(1,)), 1, NO_LOG, min_isr=2)
    assert last.isr == (1,)
    serving = brokers(SERVING, SERVING, SERVING, lives=(1, 0, 0))
    assert settled(last, serving).leader == NO_LEADER
    assert reconciled(settled(last, serving), serving).leader == NO_LEADER
    assert short(unclean(last, serving)) == (2, 6, (2,), ())


def test_the_longest_log_leads_when_all_replicas_are_back_and_suspect() -> None:
    state = settled(STATE, brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4)), (3, (4, 9))):
        assert reconciled(state, ALL) is state
        state = with_suspect(state, number, end, min_isr=2)
    found = reconciled(state, ALL)
    assert (found.leader, found.isr, found.unclean_since) == (2, (2,), found.leader_epoch)
    assert found.suspect_replicas == ((1, 5, 3), (3, 4, 9))
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)) is state


def test_a_replica_that_was_not_in_sync_need_not_be_suspect_for_the_election() -> None:
    """An example is a broker that had stopped in order before the others died: its log is never in doubt."""
    state = settled(replace(STATE, isr=(1, 2)), brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4))):
        assert reconciled(state, ALL) is state
        state = with_suspect(state, number, end, min_isr=1)
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)) is state
    assert reconciled(state, ALL).leader == 2
    empty = with_suspect(state, 3, NO_LOG, min_isr=1)
    assert reconciled(empty, ALL) is empty


def test_a_leader_that_does_not_serve_gives_way_to_another_member() -> None:
    found = settled(not_serving(STATE, 1, ALL), ALL)
    assert short(found) == (2, 6, (2, 3), ())
    assert preferred(found, ALL) is found
    assert preferred(serving(with_isr(found, (1, 2, 3), 2), 1), ALL).leader == 1


def test_the_last_member_that_does_not_serve_stays_listed_and_leads_again_when_it_serves() -> None:
    alone = replace(STATE, isr=(1,))
    waiting = settled(not_serving(alone, 1, ALL), ALL)
    assert short(waiting) == (NO_LEADER, 6, (1,), ())
    assert short(settled(serving(waiting, 1), ALL)) == (1, 7, (1,), ())


def test_a_replica_that_does_not_serve_is_elected_from_the_elr_when_it_serves_again() -> None:
    """RULES K8: such a replica lacks nothing."""
    left = replace(STATE, leader=2, isr=(2,), elr=(1,), offline=(1,), incarnation=bytes([2, 0]))
    waiting = settled(left, brokers(SERVING, FENCED, SERVING))
    assert short(waiting) == (NO_LEADER, 6, (2,), (1,))
    assert short(settled(serving(waiting, 1), brokers(SERVING, FENCED, SERVING))) == (1, 7, (1,), (2,))


def test_no_unclean_election_takes_a_replica_that_does_not_serve() -> None:
    waiting = replace(STATE, leader=NO_LEADER, isr=(1,), offline=(1, 2))
    assert unclean(waiting, ALL).leader == 3
    assert unclean(replace(waiting, offline=(1, 2, 3)), ALL).leader == NO_LEADER


def test_replicas_that_do_not_serve_are_not_back() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(1,), suspect_replicas=((1, 5, 3),), offline=(3,))
    assert reconciled(state, ALL) is state
    assert reconciled(replace(state, offline=()), ALL).leader == 1


def test_a_reassignment_does_not_end_with_a_replica_that_does_not_serve() -> None:
    moving = replace(started(replace(STATE, isr=(1, 2), replicas=(1, 2)), (1, 3)), isr=(1, 2, 3), offline=(3,))
    assert settled(moving, ALL).removing == (2,)
    assert settled(replace(moving, offline=(2,)), ALL).offline == ()


def test_a_suspect_replica_that_a_reassignment_adds_neither_leads_nor_delays_the_election() -> None:
    moving = started(replace(STATE, isr=(1, 2), replicas=(1, 2)), (1, 3))
    state = settled(moving, brokers(FENCED, FENCED, FENCED))
    for number, end in ((1, (5, 3)), (2, (5, 4)), (3, (5, 9))):
        state = with_suspect(state, number, end, min_isr=1)
    assert reconciled(state, brokers(SERVING, SERVING, FENCED)).leader == 2
    assert reconciled(state, ALL).leader == 2
    assert reconciled(state, brokers(SERVING, FENCED, SERVING)) is state


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_no_order_of_few_steps_loses_acknowledged_records(min_isr: int, synced: bool) -> None:
    outcome = explore(Limits(synced=synced, min_isr=min_isr), depth=4)
    assert outcome.wrong is None, outcome.way
    assert outcome.states > 3_000


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_no_order_of_few_steps_loses_acknowledged_records_when_logs_are_closed(min_isr: int) -> None:
    outcome = explore(Limits(min_isr=min_isr, crashes_max=1, closings_max=2), depth=4)
    assert outcome.wrong is None, outcome.way
    assert outcome.states > 3_000


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_no_order_of_few_steps_loses_acknowledged_records_when_a_disk_lies(min_isr: int) -> None:
    outcome = explore(Limits(min_isr=min_isr, crashes_max=0, power_cuts_max=1), depth=5)
    assert outcome.wrong is None, outcome.way
    assert outcome.states > 2_000


def _no_members_awaited(_state: PartitionState, _electorate: Electorate) -> list[int]:
    return []


def _elr_kept(state: PartitionState) -> PartitionState:
    return state


def _no_suspects(_: PartitionState) -> set[int]:
    return set()


def _any_replica(state: PartitionState, electorate: Electorate) -> PartitionState:
    found = settled(state, electorate)
    leader = electorate.best(state.replicas, elections.SERVING)
    if found.leader != NO_LEADER or leader == NO_LEADER:
        return found
    incarnation = electorate.brokers[leader].incarnation
    epoch = found.leader_epoch + (found.leader_epoch == state.leader_epoch)
    return replace(found, leader=leader, leader_epoch=epoch, incarnation=incarnation, isr=(leader,), elr=())


WRONG: dict[str, tuple[str, Callable[..., object], Limits, int]] = {
    "the ELR is kept when fewer are enough": ("without_elr", _elr_kept, Limits(min_isr=2, crashes_max=0), 6),
    "a suspect replica is elected": ("_suspect_ids", _no_suspects, Limits(min_isr=1), 6),
    "the first replica that is back is elected": (
        "awaited_members",
        _no_members_awaited,
        Limits(crashes_max=0, power_cuts_max=1),
        6,
    ),
    "any replica is elected": ("settled", _any_replica, Limits(min_isr=1), 6),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_model_detects_each_wrong_election_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, instead, limits, depth = WRONG[name]
    monkeypatch.setattr(elections, function, instead)
    outcome = explore(limits, depth, may_stay_broken=True)
    assert outcome.wrong in ("the leader lacks what was acknowledged", "a suspect replica is in the ELR")


def test_the_model_sees_an_election_of_a_replica_that_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "_barred", elections._suspect_ids)
    outcome = explore(Limits(closings_max=2), depth=5, may_stay_broken=True)
    assert outcome.wrong == "a replica that does not serve is elected"


def test_an_epoch_that_does_not_grow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def led_by(state: PartitionState, leader: int, electorate: Electorate) -> PartitionState:
        return replace(state, leader=leader, incarnation=electorate.brokers[leader].incarnation)

    monkeypatch.setattr(elections, "_led_by", led_by)
    assert explore(Limits(), depth=2).wrong == "an epoch with two leaders"


def test_the_model_sees_a_partition_that_nothing_makes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_serving(state: PartitionState, _replica: int) -> PartitionState:
        return state

    monkeypatch.setattr(elections, "serving", never_serving)
    outcome = explore(Limits(closings_max=1, crashes_max=0), depth=3)
    assert outcome.wrong == STUCK
    assert outcome.way[0] == "the log of 1 is closed"


def test_the_model_sees_a_wait_for_lost_replicas_that_no_operator_can_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_unclean(state: PartitionState, _electorate: Electorate) -> PartitionState:
        return state

    monkeypatch.setattr(elections, "unclean", never_unclean)
    outcome = explore(Limits(min_isr=1), depth=4)
    assert outcome.wrong == STUCK
    assert "1 loses its disk" in outcome.way


# After an accepted rollback

RECOUNT = replace(STATE, leader=NO_LEADER, suspect_replicas=((1, 4, 7), (2, 4, 9), (3, 3, 99)), recount=True)


def test_after_a_rollback_the_greatest_epoch_and_then_the_longest_log_leads() -> None:
    found = recounted(RECOUNT, ALL)
    assert short(found) == (2, 6, (2,), ())
    assert (found.recount, found.unclean_since, [suspect[0] for suspect in found.suspect_replicas]) == (
        False,
        -1,
        [1, 3],
    )


@pytest.mark.parametrize("state", [FENCED, RECOVERING, LEAVING])
def test_after_a_rollback_no_replica_leads_before_all_replicas_serve(state: BrokerState) -> None:
    assert recounted(RECOUNT, brokers(SERVING, SERVING, state)) is RECOUNT
    assert recounted(replace(RECOUNT, offline=(3,)), ALL).leader == NO_LEADER


def test_after_a_rollback_a_replica_without_a_known_log_blocks_all_but_ordered_elections() -> None:
    for suspect_replicas in (RECOUNT.suspect_replicas[:2], (*RECOUNT.suspect_replicas[:2], (3, *NO_LOG))):
        state = replace(RECOUNT, suspect_replicas=suspect_replicas)
        assert recounted(state, ALL) is state
        assert settled(state, ALL).leader == NO_LEADER
    ordered = unclean(
        replace(RECOUNT, suspect_replicas=(*RECOUNT.suspect_replicas[:2], (3, *NO_LOG))),
        brokers(SERVING, SERVING, FENCED),
    )
    assert (ordered.leader, ordered.recount, ordered.unclean_since) == (2, False, 6)


def test_after_a_rollback_an_added_replica_may_lack_a_log_or_lead_with_the_longest() -> None:
    state = replace(RECOUNT, adding=(3,), suspect_replicas=((1, 4, 7), (2, 4, 9), (3, *NO_LOG)))
    assert recounted(state, brokers(SERVING, SERVING, FENCED)).leader == 2
    assert recounted(replace(state, suspect_replicas=((1, 4, 7), (2, 4, 9), (3, 5, 1))), ALL).leader == 3
