"""What one leader is asked over a link: all of it once, and then what has changed (KIP-227). Pure.

A question stands until it is answered: what is not named again is asked once more by every request. So whatever is
asked no longer has to be forgotten by the very next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.fetching.sessions import INITIAL_EPOCH, LAST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.api import TopicPartition
    from engine.replication.exchange import Asked
    from kafkawire.messages.fetch import ReplicaState

Place = tuple[bytes, int]  # a topic id, and a partition
NOBODY: Final = (-1, -1)


class Request(NamedTuple):
    """What a Fetch says. `epoch`: of the session; INITIAL_EPOCH: it begins with this."""

    epoch: int
    named: Mapping[TopicPartition, Asked]
    forgotten: Sequence[TopicPartition]


class Asking:
    """Of one fetcher."""

    def __init__(self) -> None:
        self.standing: dict[TopicPartition, Asked] = {}
        self._places: dict[Place, TopicPartition] = {}  # of these
        self._epoch = INITIAL_EPOCH
        self._life = NOBODY
        self._new: dict[TopicPartition, Asked] = {}  # what the leader has not been told yet
        self._gone: dict[TopicPartition, None] = {}  # what it believes to be asked
        self._known: dict[TopicPartition, None] = {}

    def ask(self, partition: TopicPartition, question: Asked) -> None:
        """From the next request on."""
        self.standing[partition] = self._new[partition] = question
        self._places[partition.topic_id, partition.partition] = partition
        self._gone.pop(partition, None)

    def drop(self, partition: TopicPartition) -> Asked | None:
        """Ask nothing of it from the next request on. What was asked."""
        self._new.pop(partition, None)
        self._places.pop((partition.topic_id, partition.partition), None)
        if partition in self._known:
            self._gone[partition] = None
        return self.standing.pop(partition, None)

    def request(self, me: ReplicaState) -> Request:
        """Who is another than before, or has been told nothing, begins anew."""
        life = me.replica_id, me.replica_epoch
        if life != self._life:
            self._life = life
            self.reset()
        if self._epoch == INITIAL_EPOCH:
            self._known = dict.fromkeys(self.standing)
            made = Request(INITIAL_EPOCH, {**self.standing}, ())
        else:
            made = Request(self._epoch, self._new, [*self._gone])
            self._known.update(dict.fromkeys(self._new))
            for one in self._gone:
                del self._known[one]
        self._new, self._gone = {}, {}
        return made

    def answered(self, place: Place) -> tuple[TopicPartition, Asked] | None:
        """There is an answer; None: to nothing that is asked."""
        partition = self._places.get(place)
        question = None if partition is None else self.drop(partition)
        return None if partition is None or question is None else (partition, question)

    def responded(self, session_id: int) -> bool:
        """Whether the leader remembers what it was asked."""
        if session_id != LINK_SESSION_ID:
            self.reset()
            return False
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """The leader knows nothing, or nobody knows what it knows."""
        self._epoch = INITIAL_EPOCH
        self._known, self._new, self._gone = {}, {}, {}
