"""Incremental fetch sessions (KIP-227): the partitions that a client fetches, kept between its requests.

A client with many partitions names them once. From then on it sends only its changes, and gets only changed partitions.
A session also keeps its partitions watched in the engine: the cost of a request depends on the partitions with news,
not on all in the session. It follows Kafka's FetchSession and FetchSessionCacheShard, with one difference: an unused
session expires, while Kafka keeps it until another session needs its place.

This module decides about the contents and the life of sessions; it reads no log and never waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from engine.api import PartitionLog, ReadyWaiter, TopicIdPartition

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1
UNKNOWN_OFFSET: Final = -1
EVICTION_MS: Final = 120_000  # a session unused for this long gives way to any other
# A session unused for this long expires. By then the client has usually lost its connection too, because of
# connections.max.idle.ms. Else it gets FETCH_SESSION_ID_NOT_FOUND, and asks for all partitions once more.
UNUSED_MAX_MS: Final = 600_000
TARGETS_MAX: Final = 500_000  # of all sessions together; partitions that do not exist count too
NAME_LENGTH_PER_TARGET: Final = 250  # the longest topic name; a longer name counts as several targets

TargetKey = tuple[str | bytes, int]


class FetchTarget:
    """A fetched partition: the request for it and, in a session, the offsets that the client knows already."""

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
        """`high_watermark` and `log_start_offset`: as the client knows them (KIP-1166); only replicas send them."""
        self.topic = topic  # "" while an id has no topic
        self.weight = 1 + len(topic) // NAME_LENGTH_PER_TARGET  # its share of `TARGETS_MAX`
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
        self.replica_start_offset = log_start_offset  # of the replica's own log
        self.log: PartitionLog | None = None  # where it was last read; None after an error

    def adopt(self, other: FetchTarget) -> None:
        """Adopt the contents of a newer request."""
        self.fetch_offset = other.fetch_offset
        self.max_size_bytes = other.max_size_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.replica_start_offset = other.replica_start_offset
        if other.high_watermark != UNKNOWN_OFFSET:  # it may have dropped a reply, as one of an earlier leader epoch
            self.high_watermark = other.high_watermark
            self.log_start_offset = other.log_start_offset

    def note_sent(self, high_watermark: int, log_start_offset: int) -> bool:
        """Note the offsets that the client gets. Return whether they are news to it."""
        if self.high_watermark == high_watermark and self.log_start_offset == log_start_offset:
            return False
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        return True

    def note_error_sent(self) -> None:
        """Note that the client gets an error. After the error the partition is news again, so its high watermark is
        unknown."""
        self.high_watermark = UNKNOWN_OFFSET


class TargetWatch:
    """The logs of a set of targets, watched through one waiter of the engine."""

    __slots__ = ("_by_partition", "_logs", "_waiter")

    def __init__(self, waiter: ReadyWaiter) -> None:
        self._waiter = waiter
        self._by_partition: dict[TopicIdPartition, FetchTarget] = {}
        self._logs: dict[TargetKey, PartitionLog] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def follow(self, target: FetchTarget) -> None:
        """Watch the log from which the target was last read, in place of an earlier one."""
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
        """Stop watching the target."""
        log = self._logs.pop(target.key, None)
        if log is not None:
            self._waiter.unwatch(log)
            self._by_partition.pop(log.partition, None)

    def take_changed(self) -> list[FetchTarget]:
        """The targets whose logs have changed."""
        found = (self._by_partition.get(log.partition) for log in self._waiter.take_changed())
        return [target for target in found if target is not None]

    async def wait(self) -> None:
        """Wait until `take_changed` returns a target."""
        await self._waiter.wait()

    def close(self) -> None:
        self._waiter.close()


class FetchSession:
    """The fetch session of one client.

    `pending` are the targets that may have news, in the order of their turns. A target whose records were returned goes
    to the end, so no partition starves under a small max.bytes.
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
        self.by_id = by_id  # topics are named by id (from version 13 on); this cannot change within a session
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

    def update(self, named: Iterable[FetchTarget], forgotten: Iterable[TargetKey]) -> None:
        """Apply the client's changes, and the changes that the engine reports."""
        for target in named:
            known = self.targets.get(target.key)
            if known is None:
                self.targets[target.key] = known = target
                self.weight += target.weight
            else:
                known.adopt(target)
            self.pending[known] = None
        for key in forgotten:
            dropped = self.targets.pop(key, None)
            if dropped is not None:
                self.weight -= dropped.weight
                self.pending.pop(dropped, None)
                self.watch.drop(dropped)
        self.pending.update(dict.fromkeys(self.watch.take_changed()))

    def requeue(self, target: FetchTarget, *, served: bool, has_more: bool) -> None:
        """Requeue a target after a reply: at the end if its records were returned; it leaves the queue if it has no
        more."""
        if served:
            self.pending.pop(target, None)
        if served or has_more:
            self.pending.setdefault(target)
        else:
            self.pending.pop(target, None)

    def acquire(self) -> None:
        """Take the session for one request: two requests could otherwise wait on one waiter."""
        assert not self._busy
        self._busy = True

    def release(self) -> None:
        self._busy = False
        if self._closed:
            self.watch.close()

    def close(self) -> None:
        """Note that the session left the cache. A request that still waits in it ends by its own deadline."""
        self._closed = True
        if not self._busy:
            self.watch.close()


class FetchSessionCache:
    """All sessions of a broker: at most `slots`, with at most `TARGETS_MAX` partitions. Long topic names count as
    several."""

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
        """The session of an incremental request, with its epoch advanced, or the error code."""
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
        """Make room for a session of this weight, if an unused session or an old smaller one can be evicted for it."""
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
        """Evict the sessions that were not used for `UNUSED_MAX_MS`. A request that waits for records uses its
        session."""
        before_ms = self._now_ms() - UNUSED_MAX_MS
        for session in list(self._sessions.values()):
            if session.last_used_ms >= before_ms:
                return
            if not session.busy:
                self._evict(session)

    def may_grow(self, session: FetchSession, targets: Iterable[FetchTarget]) -> bool:
        """Whether the session may take in the new ones of these targets."""
        added = sum(target.weight for target in targets if target.key not in session.targets)
        return not added or self.weight + added <= TARGETS_MAX

    def create(self, targets: Iterable[FetchTarget], watch: TargetWatch, *, by_id: bool) -> FetchSession:
        """Create a session that owns `watch`. Ask `has_room_for` first."""
        assert len(self._sessions) < self._slots
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = FetchSession(session_id, targets, watch, by_id=by_id, now_ms=self._now_ms())
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        """Remove the session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _evict_unused(self, weight: int, now_ms: int) -> None:
        """Evict the longest unused sessions while there are too many partitions in all."""
        while self._sessions and self.weight + weight > TARGETS_MAX:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTION_MS:
                return
            self._evict(oldest)

    def _evict(self, session: FetchSession) -> None:
        self.evictions += 1
        self.remove(session.session_id)
