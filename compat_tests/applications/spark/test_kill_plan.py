"""A seed's campaign is the same each time, and a campaign of some length has everything."""

from __future__ import annotations

from collections import Counter

from compat_tests.applications.spark.kill_plan import COMMITTING, FENCED_AT, Losses, Target, lives
from compat_tests.faults.fault_plan import NO_FAULT, UNTIL_RELEASED_S, Fault
from spark_connectors.wire.messages.end_txn import END_TXN

DRIVERS = {Target.DRIVER, Target.DRIVER_ALONE}


def test_a_seed_has_one_plan() -> None:
    assert lives(1, 100) == lives(1, 100) != lives(2, 100)
    assert [Losses(1).decide(END_TXN.key, 5, number) for number in range(50)] == [
        Losses(1).decide(END_TXN.key, 5, number) for number in range(50)
    ]


def test_so_many_are_killed_and_a_driver_at_last() -> None:
    for kills in (1, 4, 15, 200):
        planned = lives(7, kills)
        assert sum(len(life.targets) for life in planned) == kills
        for life in planned:
            assert set(life.targets[-1:]) <= DRIVERS
            assert not DRIVERS & set(life.targets[:-1])


def test_executors_are_killed_where_there_are_some() -> None:
    for life in lives(7, 200):
        assert (Target.WORKER if life.is_cluster else Target.EXECUTOR) not in life.targets


def test_each_is_killed_often() -> None:
    killed = Counter(target for life in lives(7, 200) for target in life.targets)
    assert all(killed[target] >= 5 for target in Target)


def test_commits_that_go_on_are_held_everywhere_and_at_first_where_one_is_fenced() -> None:
    for seed in range(20):
        first, *others = lives(seed, 300)
        assert first.targets[-1] is Target.DRIVER_ALONE
        assert first.held_at in FENCED_AT
        assert {life.held_at for life in others} == set(COMMITTING)


def test_replies_of_all_that_commits_are_lost_and_most_are_not() -> None:
    losses = Losses(7)
    for api in COMMITTING:
        faults = Counter(losses.decide(api.key, 3, number).fault for number in range(200))
        assert 0 < faults[Fault.REPLY_LOST] < 100
        assert set(faults) == {Fault.REPLY_LOST, Fault.NONE}


def test_a_request_is_held_once() -> None:
    losses = Losses(7)
    losses.hold_next(END_TXN.key)
    assert losses.decide(-1, 0, 0) == NO_FAULT
    was_waiting = losses.is_waiting
    assert losses.decide(END_TXN.key, 3, 0) == (Fault.REQUEST_DELAYED, UNTIL_RELEASED_S)
    assert (was_waiting, losses.is_waiting) == (True, False)
    assert losses.decide(END_TXN.key, 3, 1).fault is not Fault.REQUEST_DELAYED
