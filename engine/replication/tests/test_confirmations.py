"""A leader that was stopped does not answer from what is no longer so; every order of a few steps, by a clock."""

from collections.abc import Iterator
from itertools import product

import pytest

from engine.replication.confirmations import LEASE_MS, Confirmation, Lease

ONE, OTHER = 2, 3


def following(lease: Lease, replica: int, *times_ms: int) -> None:
    """A follower that fetches as soon as a response is there."""
    link = Confirmation()
    for now_ms in times_ms:
        link.fetched()
        link.responded(now_ms)
    link.fetched()
    lease.fetched(replica, link.as_of_ms)


def test_a_new_leader_waits_until_the_one_before_answers_no_more() -> None:
    lease = Lease(1000)
    for now_ms, left_ms in ((1000, LEASE_MS), (1000 + LEASE_MS - 1, 1), (1000 + LEASE_MS, 0)):
        following(lease, ONE, now_ms)
        assert lease.wait_ms(now_ms) == left_ms
        assert lease.is_confirmed([ONE], now_ms, has_session=True) == (left_ms == 0)


def test_a_leader_waits_for_nobody_if_nobody_answers() -> None:
    lease = Lease(1000, waits=False)
    following(lease, ONE, 1000)
    assert lease.wait_ms(1000) == 0
    assert lease.is_confirmed([ONE], 1000, has_session=True)


def test_a_leader_is_confirmed_as_long_as_all_others_fetch() -> None:
    lease = Lease(0)
    assert not lease.is_confirmed([ONE], 9000, has_session=True), "it has not fetched in this epoch"
    following(lease, ONE, 9000)
    following(lease, OTHER, 9900)
    assert lease.is_confirmed([ONE, OTHER], 9000 + LEASE_MS - 1, has_session=False)
    assert not lease.is_confirmed([ONE, OTHER], 9000 + LEASE_MS, has_session=True)
    following(lease, ONE)
    assert not lease.is_confirmed([ONE, OTHER], 9900, has_session=True), "the first Fetch of a link shows nothing"


def test_a_leader_that_is_alone_in_sync_goes_by_its_session() -> None:
    assert Lease(0).is_confirmed([], LEASE_MS, has_session=True)
    assert not Lease(0).is_confirmed([], LEASE_MS, has_session=False)


def test_one_in_the_elr_may_succeed_a_leader_that_is_alone_in_sync() -> None:
    """The leader is fenced before its session ends, and goes by that; the other one leads and answers."""
    assert not Lease(0).is_confirmed([ONE], LEASE_MS, has_session=True)


def test_who_has_just_begun_takes_what_need_not_be_the_newest() -> None:
    lease = Lease(1000)
    assert lease.may_take([ONE], 1000 + LEASE_MS - 1, has_session=True)
    assert not lease.may_take([ONE], 1000 + LEASE_MS, has_session=True)
    following(lease, ONE, 1000 + LEASE_MS)
    assert lease.may_take([ONE], 1000 + LEASE_MS, has_session=False)
    assert [lease.may_take([], 9000, has_session=one) for one in (True, False)] == [True, False]


def test_zombie() -> None:
    """A Fetch that lay in the socket of a leader that was stopped is as old as the response before it."""
    link, lease = Confirmation(), Lease(0)
    link.fetched()
    link.responded(5000)
    resumed_ms = 60_000
    link.fetched()
    lease.fetched(ONE, link.as_of_ms)
    assert not lease.is_confirmed([ONE], resumed_ms, has_session=True)
    link.responded(resumed_ms)
    link.fetched()
    lease.fetched(ONE, link.as_of_ms)
    assert lease.is_confirmed([ONE], resumed_ms + 1, has_session=True)


def _fates() -> Iterator[tuple[int, ...]]:
    """When the follower learns that it leads, how long a Fetch and a response take, when the leader stands still."""
    return product(range(0, 8000, 500), (0, 400, 2500), (0, 400, 2500), (0, 3000), (0, 4000))


@pytest.mark.parametrize("poll_ms", [100, 500])
def test_two_never_answer_at_once(poll_ms: int) -> None:
    """Of a leader and one follower that succeeds it: whoever sends at what time, and whoever stands still."""
    for elected_ms, to_leader_ms, to_follower_ms, stopped_ms, stop_ms in _fates():
        link, lease, successor = Confirmation(), Lease(-LEASE_MS), Lease(elected_ms)
        sent_ms = 0
        while sent_ms < elected_ms:  # from then on it fetches no more in the old epoch
            heard_ms = sent_ms + to_leader_ms
            if stop_ms and stopped_ms <= heard_ms < stopped_ms + stop_ms:
                heard_ms = stopped_ms + stop_ms
            link.fetched()
            lease.fetched(ONE, link.as_of_ms)
            for now_ms in range(heard_ms, heard_ms + 6000, 250):
                if lease.is_confirmed([ONE], now_ms, has_session=True):
                    assert not successor.is_confirmed([], now_ms, has_session=True)
            link.responded(heard_ms + poll_ms)
            sent_ms = heard_ms + poll_ms + to_follower_ms
