"""Reads partitions for one Fetch request: a first pass over all, then a second look at those that change.

After Kafka's ReplicaManager.readFromLog and DelayedFetch, with one difference: a change costs one partition's read, not
another pass over all of them. It knows targets and the engine's results; sessions and messages are the handler's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from engine.api import NO_EPOCH, Isolation
from engine.errors import EngineError, NotLoaded
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from engine.api import PartitionLog, ReadResult
    from kafkawire.fetching.sessions import FetchTarget, TargetWatch
    from kafkawire.requests.context import RequestContext

# Known before any log is touched. Kafka answers these with the others, at the end of the wait.
UNRESOLVED: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


LOADS_MAX: Final = 3  # of one target for one request: what is loaded may be dropped before it is read


class FetchReader:
    """What has been read for one request; `unloaded` targets wait for a disk."""

    __slots__ = (
        "_context", "_failed", "_isolation", "_max_size_bytes", "_min_size_bytes", "outcomes", "size_bytes", "unloaded",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, isolation: Isolation, *, min_size_bytes: int, max_size_bytes: int
    ) -> None:
        self._context = context
        self._isolation = isolation
        self._max_size_bytes = max_size_bytes
        self._min_size_bytes = min_size_bytes
        self._failed = False
        self.outcomes: dict[FetchTarget, ReadResult | ErrorCode] = {}
        self.unloaded: dict[FetchTarget, None] = {}
        self.size_bytes = 0

    @property
    def enough(self) -> bool:
        """Whether to answer now: the bytes asked for are there, or something the client must hear of."""
        return self._failed or self.size_bytes >= self._min_size_bytes

    @property
    def full(self) -> bool:
        """Whether no further target can give records, not even the one batch that every reply may have."""
        return 0 < self.size_bytes >= self._max_size_bytes

    def has_more(self, target: FetchTarget, result: ReadResult) -> bool:
        """Whether there are records from the target's offset on, told in this reply or not."""
        committed = self._isolation is Isolation.READ_COMMITTED
        return target.fetch_offset < (result.last_stable_offset if committed else result.high_watermark)

    def read(self, target: FetchTarget) -> None:
        """Read one target, for the first time or again. The first that has records may exceed every limit."""
        before = self.outcomes.get(target)
        if before is not None and not isinstance(before, ErrorCode):
            self.size_bytes -= before.size_bytes
        try:
            room_bytes = max(0, self._max_size_bytes - self.size_bytes)
            outcome = self._read(target, room_bytes, at_least_one=not self.size_bytes)
        except NotLoaded:
            outcome = self._read(target, 0, at_least_one=False)  # no records, so nothing has to be loaded
            self.unloaded[target] = None
        self._settle(target, before, outcome)

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
        """Wait for the disk, one target after the other, as long as there is room for what they give."""
        for _ in range(LOADS_MAX):
            targets, self.unloaded = self.unloaded, {}
            for target in targets:
                if self.full:
                    return
                log = target.log
                try:
                    if log is not None:
                        await log.load(target.fetch_offset, max(0, target.max_size_bytes), self._isolation)
                except EngineError as error:
                    self._settle(target, None, error_code_of(error))
                else:
                    self.read(target)

    def _read(self, target: FetchTarget, room_bytes: int, *, at_least_one: bool) -> ReadResult | ErrorCode:
        log = self._find(target)
        if isinstance(log, ErrorCode):
            return log
        target.log = log
        try:
            log.check_leader_epoch(target.leader_epoch)
            if target.last_fetched_epoch > NO_EPOCH:
                diverged = log.read_behind(target.fetch_offset, target.last_fetched_epoch, self._isolation)
                if diverged is not None:
                    return diverged
            return log.read(
                target.fetch_offset,
                min(max(0, target.max_size_bytes), room_bytes),
                self._isolation,
                at_least_one=at_least_one,
            )
        except EngineError as error:
            return error_code_of(error)

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
        """Look again at whatever changes until there is enough, or the time is over."""
        connection = self._context.connection
        with trio.move_on_after(max_wait_ms / 1000) as scope:
            connection.answer_early = scope.cancel
            try:
                while not self.enough and not connection.is_ending:
                    await watch.wait()
                    for target in watch.take_changed():
                        self.read(target)
                        watch.follow(target)
                    await self.load()
            finally:
                connection.answer_early = None
