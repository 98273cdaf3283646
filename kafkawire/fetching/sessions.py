"""Incremental fetch sessions (KIP-227): what a client fetches, remembered between its requests.

A client with many partitions names them once; from then on it sends what changed on its side and gets what changed on
ours. A session here also keeps its partitions watched in the engine, so that a request costs as much as there are
partitions with news, not as many as the session has. After Kafka's FetchSession, FetchSessionCacheShard, with one
difference: a session that nobody uses is forgotten in the end, where Kafka's waits until another one wants its place.

This module decides who is in a session and which sessions live; it reads no log and never waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from engine.api import PartitionLog, ReadyWaiter, TopicPartition

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
UNKNOWN_OFFSET: Final = -1
EVICTION_MS: Final = 120_000  # a session unused for this long gives way to any other
# After this time it goes in any case. A client that is still there has lost its connection too by then, as Kafka sets
# connections.max.idle.ms; if not it hears FETCH_SESSION_ID_NOT_FOUND, and asks for everything once more.
UNUSED_MAX_MS: Final = 600_000
TARGETS_MAX: Final = 500_000  # of all sessions together: what clients name is kept, be there such partitions or not
NAME_LENGTH_PER_TARGET: Final = 250  # no topic has a longer name; who asks for one pays for it

TargetKey = tuple[str | bytes, int]


class FetchTarget:
    """One partition somebody fetches: what was asked for and, in a session, what its client knows already."""

    __slots__ = (
        "by_id",
        "fetch_offset",
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log",
        "log_start_offset",
        "max_size_bytes",
        "partition",
        "replica_start_offset",
        "topic",
        "topic_id",
        "weight",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: bytes,
        partition: int,
        by_id: bool,
        fetch_offset: int,
        max_size_bytes: int,
        leader_epoch: int,
        last_fetched_epoch: int,
        high_watermark: int = UNKNOWN_OFFSET,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """The last two: as far as the client says (KIP-1166), which only a replica does."""
        self.topic = topic  # "" while an id has no topic
        self.weight = 1 + len(topic) // NAME_LENGTH_PER_TARGET  # what it counts in a cache of sessions
        self.topic_id = topic_id
        self.partition = partition
        self.by_id = by_id
        self.key: TargetKey = (topic_id if by_id else topic, partition)
        self.fetch_offset = fetch_offset
        self.max_size_bytes = max_size_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.replica_start_offset = log_start_offset  # its own, whatever it was told since
        self.log: PartitionLog | None = None  # where it was last read; None after an error

    def ask(self, other: FetchTarget) -> None:
        """Take over what a newer request asks for."""
        self.fetch_offset = other.fetch_offset
        self.max_size_bytes = other.max_size_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.replica_start_offset = other.replica_start_offset
        if other.high_watermark != UNKNOWN_OFFSET:  # it may have dropped what it was told, as of an epoch that is over
            self.high_watermark = other.high_watermark
            self.log_start_offset = other.log_start_offset

    def tell(self, high_watermark: int, log_start_offset: int) -> bool:
        """Note what the client is told; whether that is news to it."""
        if self.high_watermark == high_watermark and self.log_start_offset == log_start_offset:
            return False
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        return True

    def tell_error(self) -> None:
        """An error is always told; when it is gone the partition is told again (hence no known high watermark)."""
        self.high_watermark = UNKNOWN_OFFSET


class TargetWatch:
    """The logs behind a set of targets, watched through one waiter of the engine."""

    __slots__ = ("_by_partition", "_logs", "_waiter")

    def __init__(self, waiter: ReadyWaiter) -> None:
        self._waiter = waiter
        self._by_partition: dict[TopicPartition, FetchTarget] = {}
        self._logs: dict[TargetKey, PartitionLog] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def follow(self, target: FetchTarget) -> None:
        """Watch the log the target was last read from, and no other it may have had before."""
        old, new = self._logs.get(target.key), target.log
        if old is new:
            return
        if old is not None:
            self.drop(target)
        if new is not None:
            self._waiter.watch(new)
            self._logs[target.key] = new
            self._by_partition[new.partition] = target

    def drop(self, target: FetchTarget) -> None:
        """Watch the target no longer."""
        log = self._logs.pop(target.key, None)
        if log is not None:
            self._waiter.unwatch(log)
            self._by_partition.pop(log.partition, None)

    def take_changed(self) -> list[FetchTarget]:
        """The targets worth another look."""
        found = (self._by_partition.get(log.partition) for log in self._waiter.take_changed())
        return [target for target in found if target is not None]

    async def wait(self) -> None:
        """Return when `take_changed` has something to tell."""
        await self._waiter.wait()

    def close(self) -> None:
        self._waiter.close()


class FetchSession:
    """One client's session.

    `pending` are the targets that may have something to tell, in the order in which they get their turn: whoever was
    served goes to the end, so no partition starves under a small max.bytes.
    """

    __slots__ = (
        "_busy",
        "_closed",
        "by_id",
        "created_ms",
        "epoch",
        "last_used_ms",
        "pending",
        "session_id",
        "targets",
        "watch",
        "weight",
    )

    def __init__(
        self, session_id: int, targets: Iterable[FetchTarget], watch: TargetWatch, *, by_id: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.by_id = by_id  # topics are named by id, from version 13 on; a session cannot change over
        self.targets = {target.key: target for target in targets}
        self.weight = sum(target.weight for target in self.targets.values())
        self.pending: dict[FetchTarget, None] = dict.fromkeys(self.targets.values())
        self.watch = watch
        self.epoch = INITIAL_EPOCH + 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self._busy = False
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._busy

    def update(self, asked: Iterable[FetchTarget], forgotten: Iterable[TargetKey]) -> None:
        """Apply what the client changed, and what the engine reports."""
        for target in asked:
            known = self.targets.get(target.key)
            if known is None:
                self.targets[target.key] = known = target
                self.weight += target.weight
            else:
                known.ask(target)
            self.pending[known] = None
        for key in forgotten:
            dropped = self.targets.pop(key, None)
            if dropped is not None:
                self.weight -= dropped.weight
                self.pending.pop(dropped, None)
                self.watch.drop(dropped)
        self.pending.update(dict.fromkeys(self.watch.take_changed()))

    def settle(self, target: FetchTarget, *, served: bool, has_more: bool) -> None:
        """After a reply: the served go to the end of the queue, those with nothing left leave it until they change."""
        if served:
            self.pending.pop(target, None)
        if served or has_more:
            self.pending.setdefault(target)
        else:
            self.pending.pop(target, None)

    def acquire(self) -> None:
        """One request at a time: two could wait on one waiter."""
        assert not self._busy
        self._busy = True

    def release(self) -> None:
        self._busy = False
        if self._closed:
            self.watch.close()

    def close(self) -> None:
        """Out of the cache. A request that still waits on it ends by its own deadline."""
        self._closed = True
        if not self._busy:
            self.watch.close()


class FetchSessionCache:
    """All sessions of a broker: at most `slots`, with at most `TARGETS_MAX` partitions, long names counted as more."""

    def __init__(self, slots: int, rng: random.Random, now_ms: Callable[[], int]) -> None:
        self._slots = slots
        self._rng = rng
        self._now_ms = now_ms
        self._sessions: dict[int, FetchSession] = {}  # the longest unused first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def weight(self) -> int:
        return sum(session.weight for session in self._sessions.values())

    def resume(self, session_id: int, epoch: int, *, by_id: bool) -> FetchSession | ErrorCode:
        """The session an incremental request goes on with, its epoch advanced; or why it cannot."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch or session.busy:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        session.last_used_ms = self._now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def has_room_for(self, weight: int) -> bool:
        """Make room for a session of this weight if it deserves it: over an unused one, or an old smaller one."""
        now_ms = self._now_ms()
        self._evict_unused(weight, now_ms)
        if self.weight + weight > TARGETS_MAX:
            return False
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self._evict(oldest)
            return True
        settled = [session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_MS]
        smallest = min(settled, key=lambda session: session.weight, default=None)
        if smallest is None or smallest.weight >= weight:
            return False
        self._evict(smallest)
        return True

    def expire(self) -> None:
        """Forget what nobody has used for too long; who waits for records uses it."""
        before_ms = self._now_ms() - UNUSED_MAX_MS
        for session in list(self._sessions.values()):
            if session.last_used_ms >= before_ms:
                return
            if not session.busy:
                self._evict(session)

    def may_grow(self, session: FetchSession, asked: Iterable[FetchTarget]) -> bool:
        """Whether the session may take in what it does not know yet of what is asked for."""
        added = sum(target.weight for target in asked if target.key not in session.targets)
        return not added or self.weight + added <= TARGETS_MAX

    def create(self, targets: Iterable[FetchTarget], watch: TargetWatch, *, by_id: bool) -> FetchSession:
        """A new session that owns `watch`. Ask `has_room_for` first."""
        assert len(self._sessions) < self._slots
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = FetchSession(session_id, targets, watch, by_id=by_id, now_ms=self._now_ms())
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        """Forget the session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _evict_unused(self, weight: int, now_ms: int) -> None:
        """As long as there are too many partitions in all."""
        while self._sessions and self.weight + weight > TARGETS_MAX:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTION_MS:
                return
            self._evict(oldest)

    def _evict(self, session: FetchSession) -> None:
        self.evictions += 1
        self.remove(session.session_id)
