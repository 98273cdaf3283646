"""The followers of a partition that this broker leads: notes their Fetches, and decides with them about the ISR.

The pure state machines of `engine.replication` decide; this module applies them to the partition. Every method runs on
the loop, in one step, except for loads.
"""

from engine.api import NO_OFFSET, Isolation, ReadResult
from engine.errors import NotLeaderOrFollower, OffsetNotAvailable, UnknownLeaderEpoch
from engine.partitions.leader import Leader
from engine.partitions.reads import Reads
from engine.partitions.state import PartitionState
from engine.replica_log import AsOf, FollowerFetchResult, SessionFetch
from engine.replication.exchange import FollowerFetch
from engine.replication.replicas import FollowerLag, Proposal, Replicas
from engine.roles import CommittedIsr


class LedFollowers:
    """Implements `engine.replica_log.Followers` of one partition. Unless a method says otherwise, it raises the errors
    of a partition that is not led here, and NotLeaderOrFollower if this is the only replica."""

    __slots__ = ("_reads", "_state")

    def __init__(self, state: PartitionState, reads: Reads) -> None:
        self._state = state
        self._reads = reads

    @property
    def replicas(self) -> Replicas | None:
        """The replicas as this leader knows them; None if this is the only one."""
        return self._state.leading().replicas

    def _known_replicas(self) -> Replicas:
        replicas = self.replicas
        if replicas is None:
            raise NotLeaderOrFollower(f"{self._state.name} has no other replicas here")
        return replicas

    def fetched(
        self,
        replica: int,
        broker_epoch: int,
        *,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
        log_start_offset: int,
        as_of: AsOf,
        session_fetch: SessionFetch | None = None,
    ) -> FollowerFetchResult:
        state = self._state
        asked = FollowerFetch(leader_epoch, offset, last_epoch, NO_OFFSET, log_start_offset)
        replicas = self._known_replicas()
        before, stable = state.progress.high_watermark, state.progress.last_stable
        result = replicas.fetched(replica, broker_epoch, asked, state.log_state, state.lag_clock_ms(), session_fetch)
        if (reads := state.leading().reads) is not None:
            reads.fetched(replica, as_of, session_fetch)
        if result.has_moved:
            state.high_watermark_moved(before, stable)
        elif result.has_deleted:
            state.changes.announce()
        return result

    @property
    def low_watermark(self) -> int:
        replicas, start_offset = self.replicas, self._state.log.start_offset
        return start_offset if replicas is None else replicas.low_watermark(start_offset)

    def stopped_fetching(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        role = self._state.role
        if isinstance(role, Leader):
            for one in (role.replicas, role.reads):
                if one is not None:
                    one.stopped_fetching(replica, session_fetch)

    def check_fetch_counts(self, replica: int) -> None:
        try:
            self._known_replicas().check_fetch_counts(replica)
        except UnknownLeaderEpoch:
            self.stopped_fetching(replica)
            raise

    def check_has_latest(self) -> None:
        """Raise OffsetNotAvailable if the high watermark has not reached the begin of the leader epoch yet. Raises
        nothing else."""
        role = self._state.role
        if isinstance(role, Leader) and role.replicas is not None and not role.replicas.has_latest:
            raise OffsetNotAvailable("the high watermark is not where the leader epoch begins yet")

    def learn(self, committed: CommittedIsr) -> None:
        """Take over a new committed ISR from the metadata."""
        state = self._state
        before, stable = state.progress.high_watermark, state.progress.last_stable
        replicas = self._known_replicas()
        version = replicas.version
        if replicas.learn(committed, state.lag_clock_ms()):
            state.high_watermark_moved(before, stable)
        elif replicas.version != version:
            state.changes.announce()  # earlier Fetches may no longer count: followers in sessions are noted again
        if (reads := state.leading().reads) is not None:
            reads.check()  # there may be fewer successors

    def propose(self) -> Proposal | None:
        """The ISR to write into the metadata; None: no change."""
        state = self._state
        before, stable = state.progress.high_watermark, state.progress.last_stable
        proposal = self._known_replicas().propose(state.lag_clock_ms())
        if state.progress.high_watermark is not before:  # it no longer waits for a follower that left the ISR
            state.high_watermark_moved(before, stable)
        return proposal

    def lags(self) -> dict[int, FollowerLag]:
        """Lags of the followers by broker id; empty if this is the only replica."""
        replicas = self.replicas
        return {} if replicas is None else replicas.lags(self._state.lag_clock_ms())

    def read(self, offset: int, max_size_bytes: int, *, at_least_one: bool, is_loaded: bool = False) -> ReadResult:
        self._state.check_led()
        found = self._reads.read_records(
            offset,
            max_size_bytes,
            Isolation.READ_UNCOMMITTED,
            at_least_one=at_least_one,
            is_loaded=is_loaded,
            limit=self._state.progress.written,
        )
        log = self._state.log
        is_whole = offset >= max(log.compacted_to, log.clean_to, log.dropped.tombstones_to, log.dropped.markers_to)
        return found if is_whole else self._reads.with_compacted(offset, found)

    async def load(self, offset: int, max_size_bytes: int) -> object:
        self._state.check_led()
        written = self._state.progress.written
        return await self._reads.load(offset, max_size_bytes, Isolation.READ_UNCOMMITTED, written)
