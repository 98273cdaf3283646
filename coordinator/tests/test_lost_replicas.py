"""The writes of a broker about data that its replicas may lack, and their times."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from coordinator.api import NO_LEADER, BrokerEndpoint, BrokerInfo, BrokerState, PartitionState
from coordinator.controller.elections import NO_LOG, Electorate, settled
from coordinator.membership.lost_replicas import state_for_log
from coordinator.membership.membership import Membership
from coordinator.metadata.change_log import ChangeLog
from coordinator.metadata.layout import cluster_id
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Delete
from coordinator.ports import FoundLog, HostedPartition, LogCondition
from coordinator.testing.fakes import FakeEnsemble

ID = bytes(16)
ME = BrokerInfo(1, (BrokerEndpoint("A", "host", 1),), incarnation=b"m" * 16, state=BrokerState.RECOVERING)
REPLACED = replace(ME, lost_log_dirs=("old",))
STATE = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), incarnation=b"e" * 16)
ALONE = replace(STATE, isr=(1,))
END = 4, 70
OTHERS = {one: BrokerInfo(one, (), incarnation=bytes([one]) * 16) for one in (2, 3)}
ELECTORATE = Electorate({1: ME, **OTHERS}, min_isr=2)


def state_for(
    state: PartitionState, condition: LogCondition, me: BrokerInfo = ME, electorate: Electorate = ELECTORATE
) -> PartitionState:
    return state_for_log(state, FoundLog(HostedPartition("a", ID, 0, state, {}), condition, END), me, electorate)


@pytest.mark.parametrize(
    ("condition", "suspect"),
    [
        (LogCondition.SHORT, (1, *END)),
        (LogCondition.UNSURE, (1, *END)),
        (LogCondition.DAMAGED, (1, *END)),
        (LogCondition.LOST, (1, *NO_LOG)),
    ],
)
def test_a_replica_that_may_lack_records_leaves_isr_and_elr_and_becomes_suspect(
    condition: LogCondition, suspect: tuple[int, int, int]
) -> None:
    found = state_for(STATE, condition)
    assert (found.isr, found.elr, found.suspect_replicas) == ((2, 3), (), (suspect,))
    assert state_for(found, condition) == found
    standing_by = replace(STATE, leader=2, isr=(2,), elr=(1, 3))
    assert state_for(standing_by, condition).elr == (3,)


@pytest.mark.parametrize("condition", [LogCondition.AWAY, LogCondition.CLOSED])
def test_a_replica_that_is_not_open_leaves_the_isr_without_a_mark_and_stays_in_the_elr(condition: LogCondition) -> None:
    found = state_for(STATE, condition)
    assert (found.isr, found.elr, found.suspect_replicas, found.offline) == ((2, 3), (), (), (1,))
    assert state_for(found, condition) == found
    two = state_for(replace(STATE, isr=(1, 2)), condition)
    assert (two.isr, two.elr, two.offline) == ((2,), (1,), (1,))
    standing_by = replace(STATE, leader=2, isr=(2,), elr=(1, 3))
    assert state_for(standing_by, condition) == replace(standing_by, offline=(1,))


def test_a_replica_that_is_not_open_stays_in_an_isr_of_which_no_other_member_serves() -> None:
    fenced = Electorate({1: ME, **{one: replace(OTHERS[one], state=BrokerState.FENCED) for one in OTHERS}}, 2)
    assert state_for(STATE, LogCondition.CLOSED, electorate=fenced) == replace(STATE, offline=(1,))
    assert state_for(replace(STATE, offline=(2, 3)), LogCondition.CLOSED) == replace(STATE, offline=(1, 2, 3))
    assert state_for(ALONE, LogCondition.CLOSED) == replace(ALONE, offline=(1,))


def test_a_log_that_was_open_all_the_time_serves_again_and_nothing_else_is_said_of_it() -> None:
    offline_suspect = replace(STATE, leader=2, isr=(2,), elr=(1,), offline=(1, 3), suspect_replicas=((1, *NO_LOG),))
    assert state_for(offline_suspect, LogCondition.STAYED_OPEN) == replace(offline_suspect, offline=(3,))
    assert state_for(STATE, LogCondition.STAYED_OPEN) is STATE


def test_an_opened_log_ends_offline_and_becomes_suspect_if_it_is_short() -> None:
    offline = replace(STATE, leader=2, isr=(2,), elr=(1,), offline=(1, 3))
    assert state_for(offline, LogCondition.WHOLE) == replace(offline, offline=(3,))
    short = state_for(offline, LogCondition.SHORT)
    assert (short.elr, short.suspect_replicas, short.offline) == ((), ((1, *END),), (3,))


def test_a_missing_log_is_lost_only_if_a_log_dir_is_lost() -> None:
    assert state_for(STATE, LogCondition.MISSING) is STATE
    assert state_for(STATE, LogCondition.MISSING, REPLACED).suspect_replicas == ((1, *NO_LOG),)


def test_the_last_one_stays_listed_and_does_not_lead() -> None:
    found = state_for(ALONE, LogCondition.SHORT)
    assert found.isr == (1,)
    back = {1: replace(ME, state=BrokerState.SERVING)}
    assert settled(found, Electorate(back)).leader == NO_LEADER
    assert settled(ALONE, Electorate(back)).leader == 1


def test_a_damaged_log_is_served_if_no_other_replica_can_have_more() -> None:
    assert state_for(ALONE, LogCondition.DAMAGED) is ALONE
    other_logs_lost = replace(STATE, suspect_replicas=((2, *NO_LOG), (3, 3, 60)))
    assert state_for(other_logs_lost, LogCondition.DAMAGED) is other_logs_lost


@pytest.mark.parametrize("condition", [LogCondition.DAMAGED, LogCondition.UNSURE])
def test_a_lost_log_of_a_single_replica_is_served_again_though_not_whole(condition: LogCondition) -> None:
    """No other replica could ever take the mark of a lost log away."""
    alone = replace(STATE, isr=(1,), replicas=(1,))
    assert state_for(state_for(alone, LogCondition.LOST), condition) == alone


def test_a_single_replica_is_suspect_with_a_short_log_but_not_with_an_unsure_log() -> None:
    one = replace(STATE, isr=(1,), replicas=(1,))
    assert state_for(one, LogCondition.UNSURE) is one
    assert state_for(one, LogCondition.SHORT).suspect_replicas == ((1, *END),)


def test_a_log_that_is_back_leads_as_before_but_none_that_is_short() -> None:
    assert state_for(state_for(ALONE, LogCondition.LOST), LogCondition.WHOLE) == ALONE
    short = state_for(ALONE, LogCondition.SHORT)
    assert state_for(short, LogCondition.WHOLE) is short
    followed = state_for(STATE, LogCondition.LOST)
    assert state_for(followed, LogCondition.WHOLE) is followed


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


@pytest.mark.parametrize(
    "condition", [LogCondition.WHOLE, LogCondition.SHORT, LogCondition.UNSURE, LogCondition.DAMAGED]
)
def test_each_replica_writes_the_end_of_its_log_after_an_accepted_rollback(condition: LogCondition) -> None:
    unreported = replace(
        STATE, leader=NO_LEADER, suspect_replicas=((1, *NO_LOG), (2, *NO_LOG), (3, *NO_LOG)), recount=True
    )
    found = state_for(unreported, condition)
    assert found.suspect_replicas == ((1, *END), (2, *NO_LOG), (3, *NO_LOG))
    assert state_for(found, condition) == found
    assert state_for(found, LogCondition.LOST).suspect_replicas == unreported.suspect_replicas
    assert state_for(unreported, LogCondition.MISSING).suspect_replicas == unreported.suspect_replicas
    assert state_for(unreported, LogCondition.CLOSED).offline == (1,)
