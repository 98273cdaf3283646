"""A Fetch shows its broker's state as of the previous response on the same connection."""

from engine.api import PartitionLog
from engine.waiting_reads import EventClock, WaitingReads
from kafkawire.fetching.link_session import LinkSession
from kafkawire.fetching.sessions import TargetWatch
from kafkawire.replication.followers import Followers
from kafkawire.wire.connection_info import ConnectionInfo


def test_fetch_is_as_of_the_previous_response_on_the_same_connection() -> None:
    now_ms = 5
    followers = Followers(WaitingReads(EventClock(lambda: now_ms)))
    links = [ConnectionInfo(listener_name="PLAINTEXT", peer_host="h", local_address="a") for _ in range(2)]
    assert followers.note_fetch(links[0]).as_of.ms < 0
    followers.note_response(links[0])
    now_ms = 9_000
    assert followers.note_fetch(links[0]).as_of.ms == 5
    assert followers.note_fetch(links[1]).as_of.ms < 0
    followers.note_response(links[0])
    assert followers.note_fetch(links[0]).as_of.ms == 9_000


def test_fetch_session_of_a_connection_is_closed_with_the_connection() -> None:
    followers = Followers(WaitingReads(EventClock(lambda: 0)))
    link, other = (ConnectionInfo(listener_name="PLAINTEXT", peer_host="h", local_address="a") for _ in range(2))
    waiter = FakeWaiter()
    session = followers.note_fetch(link).session
    started = session.begin([], TargetWatch(waiter))
    assert session.resume(1) is started
    assert session.resume(1) is None, "it is at 2 by now"
    assert followers.note_fetch(link).session is session
    assert followers.note_fetch(other).session.resume(1) is None
    assert not waiter.is_closed
    del link, session
    assert waiter.is_closed


def test_a_link_has_one_session_at_a_time() -> None:
    session, before = LinkSession(), FakeWaiter()
    session.begin([], TargetWatch(before))
    session_fetch = session.session_fetch
    again = session.begin([], TargetWatch(FakeWaiter()))
    assert before.is_closed
    assert session.session_fetch is not session_fetch, "what was asked in the one before stands no longer"
    assert session.resume(1) is again
    again.acquire()
    assert session.resume(2) is None, "somebody waits for what it brings"


class FakeWaiter:
    def __init__(self) -> None:
        self.is_closed = False

    def watch(self, log: PartitionLog) -> None:
        raise NotImplementedError

    def unwatch(self, log: PartitionLog) -> None:
        raise NotImplementedError

    def take_changed(self) -> list[PartitionLog]:
        return []

    async def wait(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True
