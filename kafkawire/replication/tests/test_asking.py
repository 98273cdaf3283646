"""The leader learns only the changes of a fetch session, and so always knows all fetch positions."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine.api import TopicIdPartition
from engine.replication.exchange import FollowerFetch
from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.messages.fetch import ReplicaState
from kafkawire.replication.fetch_session import FollowerSession

PARTITIONS = [TopicIdPartition(b"t" * 16, "t", number) for number in range(4)]
ONE, OTHER, *_ = PARTITIONS
ME = ReplicaState(replica_id=2, replica_epoch=5)


def at(offset: int) -> FollowerFetch:
    return FollowerFetch(0, offset, 0, 0, 0)


def started_session() -> FollowerSession:
    """A session with two partitions that the leader keeps."""
    session = FollowerSession()
    session.add(ONE, at(1))
    session.add(OTHER, at(2))
    assert session.request(ME) == (0, {ONE: at(1), OTHER: at(2)}, ())
    assert session.note_response(LINK_SESSION_ID)
    return session


def test_unchanged_fetch_positions_are_not_sent_again() -> None:
    session = started_session()
    assert session.request(ME) == (1, {}, [])
    session.note_response(LINK_SESSION_ID)
    assert session.request(ME) == (2, {}, [])
    assert session.positions == {ONE: at(1), OTHER: at(2)}


def test_answered_partition_is_sent_again_if_asked_again_else_it_is_forgotten_once() -> None:
    session = started_session()
    for partition in (ONE, OTHER):
        assert session.take_answered((partition.topic_id, partition.partition)) is not None
    session.add(ONE, at(7))
    assert session.request(ME) == (1, {ONE: at(7)}, [OTHER])
    session.note_response(LINK_SESSION_ID)
    assert session.request(ME) == (2, {}, []), "it is forgotten once"


def test_an_answer_to_nothing_that_is_asked_is_none() -> None:
    session = started_session()
    place = ONE.topic_id, ONE.partition
    assert session.take_answered(place) == (ONE, at(1))
    assert session.take_answered(place) is None
    assert session.take_answered((b"o" * 16, 0)) is None


def test_leader_without_a_fetch_session_gets_all_positions_with_each_request() -> None:
    session = FollowerSession()
    session.add(ONE, at(1))
    session.request(ME)
    assert not session.note_response(0)
    assert session.request(ME) == (0, {ONE: at(1)}, ())


def test_new_replica_epoch_starts_a_new_fetch_session() -> None:
    session = started_session()
    assert session.request(ReplicaState(replica_id=2, replica_epoch=6)) == (0, {ONE: at(1), OTHER: at(2)}, ())


Step = tuple[str, int, int]
STEPS = st.tuples(st.sampled_from(["add", "drop", "request", "lost", "forget"]), st.integers(0, 3), st.integers(0, 9))


@given(st.lists(STEPS, max_size=60))
def test_leader_knows_all_fetch_positions_after_every_request(steps: Sequence[Step]) -> None:
    session, known, epoch = FollowerSession(), dict[TopicIdPartition, FollowerFetch](), -1
    for step, number, offset in steps:
        partition = PARTITIONS[number]
        if step == "add":
            session.add(partition, at(offset))
        elif step == "drop":
            session.drop(partition)
        elif step == "forget":
            epoch = -1
        else:
            made = session.request(ME)
            if made.epoch and made.epoch != epoch:
                session.reset()
                continue
            epoch = made.epoch + 1
            known = {**({} if not made.epoch else known), **made.named}
            for one in made.forgotten:
                del known[one]
            assert known == session.positions
            if step == "lost":
                session.reset()
            else:
                session.note_response(LINK_SESSION_ID)
