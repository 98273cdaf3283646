"""Reads of partitions for another broker's Fetch: it gets all written records, and reports its own progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from engine.api import Isolation
from engine.errors import EngineError, NotLoaded
from engine.replica_log import NEVER
from kafkawire.fetching.reader import FetchReader
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from engine.api import PartitionLog, ReadResult
    from engine.replica_log import ReplicaLog, SessionFetch
    from kafkawire.fetching.link_session import PeerFetch
    from kafkawire.fetching.sessions import FetchTarget
    from kafkawire.messages.fetch import ReplicaState
    from kafkawire.requests.context import RequestContext


class ReplicaReader(FetchReader):
    """The reads of one request of a broker that has authenticated as that replica. Its progress is taken once."""

    __slots__ = ("_link", "_out_of_sync", "_progress_taken", "_replica", "_session_fetch")

    def __init__(
        self,
        context: RequestContext,
        replica: ReplicaState,
        link: PeerFetch,
        session_fetch: SessionFetch | None,
        *,
        min_size_bytes: int,
        max_size_bytes: int,
    ) -> None:
        """`session_fetch`: of the fetch session, or None."""
        super().__init__(
            context, Isolation.READ_UNCOMMITTED, min_size_bytes=min_size_bytes, max_size_bytes=max_size_bytes
        )
        self._replica = replica
        self._link = link
        self._session_fetch = session_fetch
        self._progress_taken: set[FetchTarget] = set()
        self._out_of_sync: set[FetchTarget] = set()  # those of `_progress_taken` in whose ISR the follower is not

    @property
    def enough(self) -> bool:
        """Whether to answer now. Only a request after the first response on a connection shows its broker's state, so
        the first Fetch is answered at once. So is a Fetch that was made before a read came: the next Fetch confirms
        that read."""
        as_of, fetch = self._link.as_of, self._session_fetch
        return as_of == NEVER or (fetch is not None and as_of.order <= fetch.hurried_to) or super().enough

    @property
    def awaits_tier(self) -> bool:
        """Always false: the follower asks again. If it waited, all other partitions of the connection would wait too,
        and so would the reads that its next Fetch confirms."""
        return False

    @property
    def reads_all_targets(self) -> bool:
        """Always true: the follower's progress counts for each partition."""
        return True

    def _settle(
        self, target: FetchTarget, before: ReadResult | ErrorCode | None, outcome: ReadResult | ErrorCode
    ) -> None:
        """Take the outcome of a target. After an error the follower drops the partition, so its session no longer shows
        its progress there."""
        if isinstance(outcome, ErrorCode) and target.log is not None:
            cast("ReplicaLog", target.log).followers.stopped_fetching(self._replica.replica_id, self._session_fetch)
        super()._settle(target, before, outcome)

    def note_all_read(self) -> None:
        """Note that the follower has asked again for the partitions that this request does not name."""
        if self._session_fetch is not None:
            self._session_fetch.asked(self._link.at_ms, self._link.as_of)
        self._context.broker.followers.check_reads()

    def fill(self) -> None:
        """Give the room that is left to partitions that reached replica.fetch.max.bytes. Under a load on few partitions
        a follower would otherwise fall behind, because each round trip copies no more than that."""
        limited = [target for target, found in self.outcomes.items() if self._is_limited(target, found)]
        for number, target in enumerate(limited):
            share_bytes = (self._max_size_bytes - self.size_bytes) // (len(limited) - number)
            if share_bytes > 0:
                self._read_on(target, share_bytes)

    def _is_limited(self, target: FetchTarget, found: ReadResult | ErrorCode) -> bool:
        """Whether the partition reached its own limit, and no throttle limits how fast it is copied."""
        if isinstance(found, ErrorCode) or not 0 < target.max_size_bytes <= found.size_bytes or target.log is None:
            return False
        config = cast("ReplicaLog", target.log).config
        is_throttled = config.leader_throttled_replicas or config.follower_throttled_replicas
        return not (is_throttled and target in self._out_of_sync)

    def _read_on(self, target: FetchTarget, more_bytes: int) -> None:
        """Read more of a target, or keep the first read if that is not possible now."""
        before, log = self.outcomes[target], target.log
        assert log is not None
        assert not isinstance(before, ErrorCode)
        try:
            size_bytes = before.size_bytes + more_bytes
            found = self._read_log(log, target, size_bytes, at_least_one=True, is_loaded=False)
        except (EngineError, NotLoaded):
            return
        if found.size_bytes > before.size_bytes:
            self.outcomes[target] = found
            self.size_bytes += found.size_bytes - before.size_bytes

    def has_more(self, target: FetchTarget, result: ReadResult) -> bool:
        """Whether there are written records from the target's offset on."""
        return target.log is not None and target.fetch_offset < target.log.log_end_offset

    async def _load(self, log: PartitionLog, target: FetchTarget) -> None:
        await cast("ReplicaLog", log).followers.load(target.fetch_offset, max(0, target.max_size_bytes))

    def _read_log(
        self, log: PartitionLog, target: FetchTarget, max_size_bytes: int, *, at_least_one: bool, is_loaded: bool
    ) -> ReadResult:
        replicated = cast("ReplicaLog", log)
        is_taken = target in self._progress_taken
        if not is_taken:
            replicated.followers.stopped_fetching(self._replica.replica_id)  # even if this read fails
        replicated.check_leader_epoch(target.leader_epoch)
        if is_taken:
            replicated.followers.check_fetch_counts(self._replica.replica_id)
        else:
            self._progress_taken.add(target)
            if (diverged := self._take_progress(target, replicated)) is not None:
                return diverged
        if self._is_throttled(target, replicated):
            return _empty_read(replicated)
        return replicated.followers.read(
            target.fetch_offset, max_size_bytes, at_least_one=at_least_one, is_loaded=is_loaded
        )

    def _take_progress(self, target: FetchTarget, log: ReplicaLog) -> ReadResult | None:
        """Take the follower's progress. If its log diverges from this one, return where, without records."""
        replica = self._replica
        result = log.followers.fetched(
            replica.replica_id,
            replica.replica_epoch,
            leader_epoch=target.leader_epoch,
            offset=target.fetch_offset,
            last_epoch=target.last_fetched_epoch,
            log_start_offset=target.replica_start_offset,
            as_of=self._link.as_of,
            session_fetch=self._session_fetch,
        )
        if result.is_outside:
            self._out_of_sync.add(target)
            self._context.broker.note_follower(log.partition)
        return None if result.diverging is None else _empty_read(log)._replace(diverging=result.diverging)

    def _is_throttled(self, target: FetchTarget, log: ReplicaLog) -> bool:
        """Whether throttling withholds the records for now (Kafka's ReplicaManager.shouldLeaderThrottle)."""
        throttle = self._context.broker.throttles.leader
        return target in self._out_of_sync and throttle.must_wait(
            log.config.leader_throttled_replicas, target.partition
        )

    def _find(self, target: FetchTarget) -> PartitionLog | ErrorCode:
        topic = self._context.broker.cluster.image.topics_by_id.get(target.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        target.topic = topic.name
        return find_log(self._context.broker.store, topic, target.partition)


def _empty_read(log: ReplicaLog) -> ReadResult:
    """The progress of this log, without records."""
    return log.followers.read(log.log_start_offset, 0, at_least_one=False)
