"""Reads of the partitions of one Fetch request: a first pass over all, then another look at those that change.

It follows Kafka's ReplicaManager.readFromLog and DelayedFetch, with one difference: a change costs one partition's
read, not another pass over all of them. It knows targets and the engine's results; the handler knows sessions and
messages.

Each request waits for records on a local disk. Records that only the remote tier has are loaded meanwhile, all at once
(KAFKA-14915), and a request that has other records or errors to return does not wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from engine.api import NO_EPOCH, Isolation
from engine.errors import ColdNotLoaded, EngineError, NotLoaded, TierUnreachable
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.api import PartitionLog, ReadResult
    from kafkawire.fetching.cold_loads import ColdLoad
    from kafkawire.fetching.sessions import FetchTarget, TargetWatch
    from kafkawire.requests.context import RequestContext

# Errors that are known before any log is touched. Kafka answers them with the others, at the end of the wait.
UNRESOLVED: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


LOADS_MAX: Final = 3  # loads of one target for one request: loaded records may be evicted before they are read


class FetchReader:
    """The reads of one request; `unloaded` targets wait for a disk. Close it when done."""

    __slots__ = (
        "_cold", "_cold_started", "_context", "_failed", "_has_arrived", "_isolation", "_max_size_bytes",
        "_min_size_bytes", "_planned_bytes", "_waiting", "outcomes", "size_bytes", "unloaded",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, isolation: Isolation, *, min_size_bytes: int, max_size_bytes: int
    ) -> None:
        self._context = context
        self._isolation = isolation
        self._max_size_bytes = max_size_bytes
        self._min_size_bytes = min_size_bytes
        self._failed = False
        self._cold: dict[FetchTarget, ColdLoad | None] = {}  # loads from the tier; None: no further one
        self._cold_started: dict[FetchTarget, int] = {}
        self._planned_bytes = 0  # the most that the loads may bring
        self._has_arrived = False
        self._waiting: trio.CancelScope | None = None
        self.outcomes: dict[FetchTarget, ReadResult | ErrorCode] = {}
        self.unloaded: dict[FetchTarget, None] = {}
        self.size_bytes = 0

    @property
    def enough(self) -> bool:
        """Whether to answer now: there are enough bytes, or an error or divergence that the client must get."""
        return self._failed or self.size_bytes >= self._min_size_bytes

    @property
    def full(self) -> bool:
        """Whether no further target can give records, not even the one batch that each reply may have."""
        return 0 < self.size_bytes >= self._max_size_bytes

    @property
    def awaits_tier(self) -> bool:
        """Whether the request has nothing to return yet, except records that are being loaded from the tier."""
        return not self.size_bytes and not self._failed and any(load is not None for load in self._cold.values())

    @property
    def reads_all_targets(self) -> bool:
        """Whether targets are looked at even if there is no room for their records."""
        return False

    def note_all_read(self) -> None:
        """Note that all targets have been looked at once; further reads are of logs that have changed since."""

    def fill(self) -> None:
        """Give the room that is left, after the last read, to partitions that reached their own limit."""

    def has_more(self, target: FetchTarget, result: ReadResult) -> bool:
        """Whether there are records from the target's offset on, even if this reply contains them."""
        committed = self._isolation is Isolation.READ_COMMITTED
        return target.fetch_offset < (result.last_stable_offset if committed else result.high_watermark)

    def read_target(self, target: FetchTarget, *, is_loaded: bool = False) -> None:
        """Read one target, for the first time or again. The first target with records may exceed each limit.
        `is_loaded`: after a load."""
        before = self.outcomes.get(target)
        if before is not None and not isinstance(before, ErrorCode):
            self.size_bytes -= before.size_bytes
        try:
            room_bytes = max(0, self._max_size_bytes - self.size_bytes)
            outcome = self._outcome_of(target, room_bytes, at_least_one=not self.size_bytes, is_loaded=is_loaded)
        except NotLoaded as missing:
            outcome = self._outcome_of(target, 0, at_least_one=False)  # no records, so no load is necessary
            if not isinstance(missing, ColdNotLoaded):
                self.unloaded[target] = None
            elif target not in self._cold and target.log is not None:
                outcome = self._begin_load(target, target.log) or outcome
            elif is_loaded:
                self._note_unserved(target)
        self._settle(target, before, outcome)

    def _note_unserved(self, target: FetchTarget) -> None:
        """Note a target whose records were loaded `LOADS_MAX` times, and are not in memory."""
        broker = self._context.broker
        broker.metrics.unserved_reads += 1
        broker.unserved_reads.note(target.topic, target.partition, target.fetch_offset)

    def _begin_load(self, target: FetchTarget, log: PartitionLog) -> ErrorCode | None:
        """Begin a load from the tier, if the reply has room for it. Return the error of a load that has just failed."""
        room_bytes = self._max_size_bytes - self.size_bytes - self._planned_bytes
        if room_bytes <= 0 and (self.size_bytes or self._cold):
            return None
        size_bytes = max(0, target.max_size_bytes)
        load = self._context.broker.cold_loads.begin(log, target.fetch_offset, size_bytes, self._isolation)
        if load is None:
            return None
        if load.is_over:
            return _code_of(load)
        load.call_when_over(self._wake)
        self._cold[target] = load
        self._cold_started[target] = self._cold_started.get(target, 0) + 1
        self._planned_bytes += size_bytes
        return None

    def _wake(self) -> None:
        self._has_arrived = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _take_arrived(self) -> None:
        self._has_arrived = False
        for target, load in list(self._cold.items()):
            if load is None or not load.is_over:
                continue
            self._cold[target] = None
            code = _code_of(load)
            if code is not None:
                self._settle(target, None, code)
            elif load.error is None:
                if self._cold_started[target] < LOADS_MAX:
                    del self._cold[target]
                    self._planned_bytes -= max(0, target.max_size_bytes)
                self.read_target(target, is_loaded=True)
            load.note_read(self._wake)

    def close(self) -> None:
        """Leave the loads, which go on."""
        for load in self._cold.values():
            if load is not None:
                load.forget(self._wake)

    def _settle(
        self, target: FetchTarget, before: ReadResult | ErrorCode | None, outcome: ReadResult | ErrorCode
    ) -> None:
        self.outcomes[target] = outcome
        if isinstance(outcome, ErrorCode):
            target.log = None
            self._failed |= before is not None or outcome not in UNRESOLVED
        else:
            self._failed |= outcome.diverging is not None
            self.size_bytes += outcome.size_bytes

    async def load(self) -> None:
        """Wait for the disk, one target after the other, as long as there is room for their records."""
        for _ in range(LOADS_MAX):
            targets, self.unloaded = self.unloaded, {}
            for target in targets:
                if self.full:
                    return
                log = target.log
                try:
                    if log is not None:
                        await self._load(log, target)
                except EngineError as error:
                    self._settle(target, None, error_code_of(error))
                else:
                    self.read_target(target, is_loaded=True)
        for target in self.unloaded:
            self._note_unserved(target)

    async def _load(self, log: PartitionLog, target: FetchTarget) -> None:
        await log.load(target.fetch_offset, max(0, target.max_size_bytes), self._isolation)

    def _outcome_of(
        self, target: FetchTarget, room_bytes: int, *, at_least_one: bool, is_loaded: bool = False
    ) -> ReadResult | ErrorCode:
        log = self._find(target)
        if isinstance(log, ErrorCode):
            return log
        target.log = log
        try:
            size_bytes = min(max(0, target.max_size_bytes), room_bytes)
            return self._read_log(log, target, size_bytes, at_least_one=at_least_one, is_loaded=is_loaded)
        except TierUnreachable:  # the tier's segments are not known yet: for the reader the same as a missing load
            raise ColdNotLoaded from None
        except EngineError as error:
            return error_code_of(error)

    def _read_log(
        self, log: PartitionLog, target: FetchTarget, max_size_bytes: int, *, at_least_one: bool, is_loaded: bool
    ) -> ReadResult:
        """Read a log. Raises EngineError."""
        log.check_leader_epoch(target.leader_epoch)
        if target.last_fetched_epoch > NO_EPOCH:
            diverged = log.check_divergence(target.fetch_offset, target.last_fetched_epoch, self._isolation)
            if diverged is not None:
                return diverged
        offset, isolation = target.fetch_offset, self._isolation
        return log.read(offset, max_size_bytes, isolation, at_least_one=at_least_one, is_loaded=is_loaded)

    def _find(self, target: FetchTarget) -> PartitionLog | ErrorCode:
        image = self._context.broker.cluster.image
        if target.by_id:
            topic = image.topics_by_id.get(target.topic_id)
            if topic is not None:
                target.topic = topic.name
            elif not target.topic:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = image.topics.get(target.topic)
        if not self._context.authorize(Operation.READ, ResourceType.TOPIC, target.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is not None:
            return find_log(self._context.broker.store, topic, target.partition)
        if target.by_id and image.partition(target.topic, target.partition) is not None:
            return ErrorCode.INCONSISTENT_TOPIC_ID  # deleted and created again since the session knows it
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def wait(self, watch: TargetWatch, max_wait_ms: int) -> None:
        """Read the targets that change until there is enough, or the time is over. A request that has nothing then may
        wait longer for the tier: else a client that waits less than a GET takes would never get records."""
        began_s = trio.current_time()
        await self._read_until(began_s + max_wait_ms / 1000, watch, lambda: self.enough)
        if self.awaits_tier:
            deadline_s = began_s + self._context.broker.cold_loads.max_wait_ms / 1000
            await self._read_until(deadline_s, watch, lambda: not self.awaits_tier)

    async def _read_until(self, deadline_s: float, watch: TargetWatch, is_over: Callable[[], bool]) -> None:
        connection = self._context.connection
        with trio.CancelScope(deadline=deadline_s) as scope:
            connection.answer_early = scope.cancel
            try:
                while not is_over() and not connection.is_ending:
                    await self._wait_for_change(watch)
                    for target in watch.take_changed():
                        self.read_target(target)
                        watch.follow(target)
                    if self._has_arrived:
                        self._take_arrived()
                    await self.load()
            finally:
                connection.answer_early = None

    async def _wait_for_change(self, watch: TargetWatch) -> None:
        """Wait for a change of a watched log, or for the end of a load."""
        if not self._cold:
            await watch.wait()
        elif not self._has_arrived:
            with trio.CancelScope() as self._waiting:
                await watch.wait()
            self._waiting = None


def _code_of(load: ColdLoad) -> ErrorCode | None:
    """The error code of a load that is over. If the tier cannot be reached, this is no error: there are no records for
    now."""
    error = load.error
    if error is None or isinstance(error, TierUnreachable):
        return None
    if not isinstance(error, EngineError):
        raise error
    return error_code_of(error)
