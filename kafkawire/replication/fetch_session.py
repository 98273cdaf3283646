"""The fetch session of a follower with one leader: all partitions once, and then only the changed ones (KIP-227). Pure.

The fetch position of a partition stands until the leader answers it: each request implies all partitions that it does
not name. So a dropped partition is forgotten with the very next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.fetching.sessions import INITIAL_EPOCH, LAST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.api import TopicIdPartition
    from engine.replication.exchange import FollowerFetch
    from kafkawire.messages.fetch import ReplicaState

Place = tuple[bytes, int]  # a topic id, and a partition
NO_REGISTRATION: Final = (-1, -1)


class FetchContents(NamedTuple):
    """The contents of one Fetch request. `epoch`: of the fetch session; with INITIAL_EPOCH a session begins."""

    epoch: int
    named: Mapping[TopicIdPartition, FollowerFetch]
    forgotten: Sequence[TopicIdPartition]


class FollowerSession:
    """The fetch session of one fetcher."""

    def __init__(self) -> None:
        self.positions: dict[TopicIdPartition, FollowerFetch] = {}
        self._places: dict[Place, TopicIdPartition] = {}  # the partitions of `positions`
        self._epoch = INITIAL_EPOCH
        self._registration = NO_REGISTRATION
        self._new: dict[TopicIdPartition, FollowerFetch] = {}  # not sent to the leader yet
        self._gone: dict[TopicIdPartition, None] = {}  # dropped here, and still in the leader's session
        self._known: dict[TopicIdPartition, None] = {}  # in the leader's session

    def add(self, partition: TopicIdPartition, position: FollowerFetch) -> None:
        """Fetch a partition from the next request on."""
        self.positions[partition] = self._new[partition] = position
        self._places[partition.topic_id, partition.partition] = partition
        self._gone.pop(partition, None)

    def drop(self, partition: TopicIdPartition) -> FollowerFetch | None:
        """Stop fetching a partition from the next request on. Return its fetch position, or None."""
        self._new.pop(partition, None)
        self._places.pop((partition.topic_id, partition.partition), None)
        if partition in self._known:
            self._gone[partition] = None
        return self.positions.pop(partition, None)

    def request(self, me: ReplicaState) -> FetchContents:
        """The next request. If this broker has another broker epoch than before, or the leader knows nothing yet, a
        session begins."""
        registration = me.replica_id, me.replica_epoch
        if registration != self._registration:
            self._registration = registration
            self.reset()
        if self._epoch == INITIAL_EPOCH:
            self._known = dict.fromkeys(self.positions)
            contents = FetchContents(INITIAL_EPOCH, {**self.positions}, ())
        else:
            contents = FetchContents(self._epoch, self._new, [*self._gone])
            self._known.update(dict.fromkeys(self._new))
            for one in self._gone:
                del self._known[one]
        self._new, self._gone = {}, {}
        return contents

    def take_answered(self, place: Place) -> tuple[TopicIdPartition, FollowerFetch] | None:
        """Drop the partition that the leader has answered, and return it with its fetch position; None if it is not
        fetched."""
        partition = self._places.get(place)
        position = None if partition is None else self.drop(partition)
        return None if partition is None or position is None else (partition, position)

    def note_response(self, session_id: int) -> bool:
        """Whether the leader keeps the session. If it does not, the next request begins another one."""
        if session_id != LINK_SESSION_ID:
            self.reset()
            return False
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """Begin another session, because the leader has none or its contents are unknown."""
        self._epoch = INITIAL_EPOCH
        self._known, self._new, self._gone = {}, {}, {}
