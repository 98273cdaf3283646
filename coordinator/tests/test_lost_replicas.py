"""The writes of a broker about data that its replicas may lack, and their times."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from coordinator.api import NO_LEADER, BrokerEndpoint, BrokerInfo, BrokerState, PartitionState
from coordinator.controller.elections import NO_LOG, Electorate, settled
from coordinator.membership.lost_replicas import as_told
from coordinator.membership.membership import Membership
from coordinator.metadata.change_log import ChangeLog
from coordinator.metadata.layout import cluster_id
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Delete
from coordinator.ports import Held, Holding, HostedPartition
from coordinator.testing.fakes import FakeEnsemble

ID = bytes(16)
ME = BrokerInfo(1, (BrokerEndpoint("A", "host", 1),), incarnation=b"m" * 16, state=BrokerState.RECOVERING)
REPLACED = replace(ME, lost_log_dirs=("old",))
STATE = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), incarnation=b"e" * 16)
ALONE = replace(STATE, isr=(1,))
END = 4, 70
OTHERS = {one: BrokerInfo(one, (), incarnation=bytes([one]) * 16) for one in (2, 3)}
ELECTORATE = Electorate({1: ME, **OTHERS}, min_isr=2)


def told(
    state: PartitionState, holding: Holding, me: BrokerInfo = ME, electorate: Electorate = ELECTORATE
) -> PartitionState:
    return as_told(state, Held(HostedPartition("a", ID, 0, state, {}), holding, END), me, electorate)


@pytest.mark.parametrize(
    ("holding", "mark"),
    [
        (Holding.SHORT, (1, *END)),
        (Holding.UNSURE, (1, *END)),
        (Holding.DAMAGED, (1, *END)),
        (Holding.LOST, (1, *NO_LOG)),
    ],
)
def test_a_replica_that_may_lack_records_leaves_isr_and_elr_and_becomes_suspect(
    holding: Holding, mark: tuple[int, int, int]
) -> None:
    found = told(STATE, holding)
    assert (found.isr, found.elr, found.marks) == ((2, 3), (), (mark,))
    assert told(found, holding) == found
    standing_by = replace(STATE, leader=2, isr=(2,), elr=(1, 3))
    assert told(standing_by, holding).elr == (3,)


@pytest.mark.parametrize("holding", [Holding.AWAY, Holding.CLOSED])
def test_a_replica_that_is_not_open_leaves_the_isr_without_a_mark_and_stays_in_the_elr(holding: Holding) -> None:
    found = told(STATE, holding)
    assert (found.isr, found.elr, found.marks, found.offline) == ((2, 3), (), (), (1,))
    assert told(found, holding) == found
    two = told(replace(STATE, isr=(1, 2)), holding)
    assert (two.isr, two.elr, two.offline) == ((2,), (1,), (1,))
    standing_by = replace(STATE, leader=2, isr=(2,), elr=(1, 3))
    assert told(standing_by, holding) == replace(standing_by, offline=(1,))


def test_a_replica_that_is_not_open_stays_in_an_isr_of_which_no_other_member_serves() -> None:
    fenced = Electorate({1: ME, **{one: replace(OTHERS[one], state=BrokerState.FENCED) for one in OTHERS}}, 2)
    assert told(STATE, Holding.CLOSED, electorate=fenced) == replace(STATE, offline=(1,))
    assert told(replace(STATE, offline=(2, 3)), Holding.CLOSED) == replace(STATE, offline=(1, 2, 3))
    assert told(ALONE, Holding.CLOSED) == replace(ALONE, offline=(1,))


def test_a_log_that_was_open_all_the_time_serves_again_and_nothing_else_is_said_of_it() -> None:
    marked = replace(STATE, leader=2, isr=(2,), elr=(1,), offline=(1, 3), marks=((1, *NO_LOG),))
    assert told(marked, Holding.KEPT) == replace(marked, offline=(3,))
    assert told(STATE, Holding.KEPT) is STATE


def test_an_opened_log_ends_offline_and_becomes_suspect_if_it_is_short() -> None:
    offline = replace(STATE, leader=2, isr=(2,), elr=(1,), offline=(1, 3))
    assert told(offline, Holding.WHOLE) == replace(offline, offline=(3,))
    short = told(offline, Holding.SHORT)
    assert (short.elr, short.marks, short.offline) == ((), ((1, *END),), (3,))


def test_a_missing_log_is_lost_only_if_a_log_dir_is_lost() -> None:
    assert told(STATE, Holding.MISSING) is STATE
    assert told(STATE, Holding.MISSING, REPLACED).marks == ((1, *NO_LOG),)


def test_the_last_one_stays_listed_and_does_not_lead() -> None:
    found = told(ALONE, Holding.SHORT)
    assert found.isr == (1,)
    back = {1: replace(ME, state=BrokerState.SERVING)}
    assert settled(found, Electorate(back)).leader == NO_LEADER
    assert settled(ALONE, Electorate(back)).leader == 1


def test_a_damaged_log_is_served_if_no_other_replica_can_have_more() -> None:
    assert told(ALONE, Holding.DAMAGED) is ALONE
    others_lost_theirs = replace(STATE, marks=((2, *NO_LOG), (3, 3, 60)))
    assert told(others_lost_theirs, Holding.DAMAGED) is others_lost_theirs


@pytest.mark.parametrize("holding", [Holding.DAMAGED, Holding.UNSURE])
def test_a_lost_log_of_a_single_replica_is_served_again_though_not_whole(holding: Holding) -> None:
    """No other replica could ever take the mark of a lost log away."""
    alone = replace(STATE, isr=(1,), replicas=(1,))
    assert told(told(alone, Holding.LOST), holding) == alone


def test_a_single_replica_is_suspect_with_a_short_log_but_not_with_an_unsure_log() -> None:
    one = replace(STATE, isr=(1,), replicas=(1,))
    assert told(one, Holding.UNSURE) is one
    assert told(one, Holding.SHORT).marks == ((1, *END),)


def test_a_log_that_is_back_leads_as_before_but_none_that_is_short() -> None:
    assert told(told(ALONE, Holding.LOST), Holding.WHOLE) == ALONE
    short = told(ALONE, Holding.SHORT)
    assert told(short, Holding.WHOLE) is short
    followed = told(STATE, Holding.LOST)
    assert told(followed, Holding.WHOLE) is followed


async def test_lost_log_dirs_stay_recorded_until_the_broker_serves_without_absent_logs() -> None:
    ensemble, random = FakeEnsemble(), Random(0)
    store = ensemble.connect()
    log = ChangeLog(store, 1, random)
    await log.load(await cluster_id(store, random))
    membership = Membership(store, log, ME, random)

    async def register(*log_dirs: str) -> tuple[str, ...]:
        await membership.register(log_dirs, 1)
        await store.multi([Delete(paths.broker(1))])
        return log.image.members[1].lost_log_dirs

    assert await register("a", "b") == ()
    assert await register("b", "c") == ("a",)
    assert await register("c") == ("a", "b")
    assert await register("a", "c") == ("b",)
    await membership.become(BrokerState.SERVING, has_away=True)
    assert await register("a", "c") == ("b",)
    await membership.become(BrokerState.SERVING)
    assert await register("a", "c") == ()


@pytest.mark.parametrize("holding", [Holding.WHOLE, Holding.SHORT, Holding.UNSURE, Holding.DAMAGED])
def test_each_replica_writes_the_end_of_its_log_after_an_accepted_rollback(holding: Holding) -> None:
    untold = replace(STATE, leader=NO_LEADER, marks=((1, *NO_LOG), (2, *NO_LOG), (3, *NO_LOG)), recount=True)
    found = told(untold, holding)
    assert found.marks == ((1, *END), (2, *NO_LOG), (3, *NO_LOG))
    assert told(found, holding) == found
    assert told(found, Holding.LOST).marks == untold.marks
    assert told(untold, Holding.MISSING).marks == untold.marks
    assert told(untold, Holding.CLOSED).offline == (1,)
