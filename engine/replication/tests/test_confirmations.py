"""Confirmation by Fetches: as of the response before on the same connection, for all partitions of the session."""

from engine.replica_log import SessionFetch
from engine.replication.confirmations import Confirmation, ConfirmedMoments
from engine.waiting_reads import NEVER, AsOf, EventClock

ONE, OTHER = 2, 3


def test_moments_are_ordered_though_the_clock_stands_still() -> None:
    clock = EventClock(lambda: 5)
    first, second = clock.next(), clock.next()
    assert NEVER < first < second
    assert (first.ms, second.ms) == (5, 5)


def test_zombie() -> None:
    """A Fetch that waited in the socket of a paused leader is as old as the response before it."""
    link = Confirmation()
    link.fetched()
    assert link.as_of == NEVER, "the first Fetch of a link shows nothing"
    link.responded(AsOf(5_000, 1))
    link.fetched()
    assert link.as_of == AsOf(5_000, 1)
    link.responded(AsOf(60_000, 9))
    assert link.as_of == AsOf(5_000, 1)
    link.fetched()
    assert link.as_of == AsOf(60_000, 9)


def test_by_all_returns_the_oldest_confirmation_of_the_followers() -> None:
    moments = ConfirmedMoments()
    moments.fetched(ONE, AsOf(7, 7))
    assert moments.by_all([ONE]) == AsOf(7, 7)
    assert moments.by_all([ONE, OTHER]) == NEVER
    moments.fetched(OTHER, AsOf(5, 5))
    assert moments.by_all([ONE, OTHER]) == AsOf(5, 5)
    assert moments.by_all([]) == NEVER


def test_a_session_confirms_a_partition_until_the_partition_leaves_the_session() -> None:
    moments, session_fetch = ConfirmedMoments(), SessionFetch()
    moments.fetched(ONE, AsOf(1, 1), session_fetch)
    session_fetch.asked(9, AsOf(9, 9))
    assert moments.by(ONE) == AsOf(9, 9)
    moments.stopped_fetching(ONE)
    session_fetch.asked(20, AsOf(20, 20))
    assert moments.by(ONE) == AsOf(9, 9), "what was shown stays shown"


def test_a_session_that_lets_go_of_a_partition_late_takes_nothing_from_the_next_one() -> None:
    moments, before, session_fetch = ConfirmedMoments(), SessionFetch(), SessionFetch()
    moments.fetched(ONE, AsOf(1, 1), before)
    moments.fetched(ONE, AsOf(2, 2), session_fetch)
    moments.stopped_fetching(ONE, before)
    session_fetch.asked(9, AsOf(9, 9))
    assert moments.by(ONE) == AsOf(9, 9)
    moments.stopped_fetching(ONE, session_fetch)
    session_fetch.asked(20, AsOf(20, 20))
    assert moments.by(ONE) == AsOf(9, 9)


def test_a_session_is_hurried_up_to_the_newest_read() -> None:
    moments, session_fetch = ConfirmedMoments(), SessionFetch()
    moments.fetched(ONE, AsOf(1, 1), session_fetch)
    moments.hurry([ONE, OTHER], AsOf(5, 5))
    moments.hurry([ONE], AsOf(4, 4))
    assert session_fetch.hurried_to == 5
    moments.stopped_fetching(ONE)
    moments.hurry([ONE], AsOf(8, 8))
    assert session_fetch.hurried_to == 5
