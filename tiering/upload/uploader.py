"""The uploader of a broker: copies sealed segments of led partitions to the tier, and deletes there what the logs have
lost.

It runs in the background, on several partitions at a time, one step of each after another. A partition that fails
waits, while the others go on. A stop need not wait for it: the next leader finds unfinished work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import trio

from engine.errors import CorruptMessage, EngineError, OffsetOutOfRange, StorageError
from engine.tier import CopyLag
from tiering.errors import Fenced, TierError
from tiering.manifest.manifest import NO_LEADERS_EPOCH, Fence, Manifest
from tiering.manifest.manifest_log import Author, ManifestLog
from tiering.names import Place
from tiering.object_store import StoreError, StoreUnavailable
from tiering.problems import Problems
from tiering.statistics import TieredPartition, TierStatistics, TopicCounters
from tiering.upload.copy_rate import CopyRate
from tiering.upload.partition_tier import PartitionTier, TierOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.api import TopicIdPartition
    from engine.tier import TierableLog
    from tiering.manifest.manifest import SegmentEntry
    from tiering.object_store import ObjectStore

BACK_OFF_MIN_S, BACK_OFF_MAX_S, JITTER = 0.5, 30.0, 0.2
COLLECT_INTERVAL_S = 3600.0  # between two collections of old manifests of a partition
TURN = 64  # partitions between two checkpoints of the event loop


@dataclass(frozen=True, slots=True)
class UploaderOptions:
    """Options of the uploader. `copy_max_bytes_per_s`: the rate of all copiers together, which may change at any
    time."""

    copiers: int = 2
    interval_ms: int = 30_000
    copy_max_bytes_per_s: Callable[[], int] = lambda: 2**63 - 1
    late_put_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class Identity:
    """The place of a cluster in the store, and the identity of the writing broker."""

    root: str
    cluster_id: str
    owner_generation: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class UploaderDeps:
    """The dependencies of the uploader."""

    logs: Callable[[], Iterable[TierableLog]]
    now_ms: Callable[[], int]
    random: Random
    on_problem: Callable[[str], None]


@dataclass(slots=True)
class _Work:
    """A partition in one leader epoch; it is skipped until trio's time `not_before_s`."""

    tier: PartitionTier
    leader_epoch: int
    counted: TierStatistics
    problems: Problems
    not_before_s: float = 0.0
    failures: int = 0
    is_fenced: bool = False
    collect_at_s: float = -1.0
    problem: str | None = None  # the last reported problem
    waiting: deque[tuple[int, float]] = field(default_factory=deque)  # (end offset, trio's time) of segments that wait

    @property
    def lag(self) -> CopyLag:
        """The segments that wait for upload; none if uploads are disabled for the topic."""
        log = self.tier.log
        return CopyLag() if log.config.remote_copy_disabled else log.copy_lag()

    def note_waiting(self) -> None:
        """Note new segments that wait. There is at most one note for each segment."""
        lag = self.lag
        while self.waiting and (not lag.segments or self.waiting[0][0] <= lag.first):
            self.waiting.popleft()
        if lag.segments and (not self.waiting or self.waiting[-1][0] < lag.end):
            self.waiting.append((lag.end, trio.current_time()))

    @property
    def waiting_s(self) -> float:
        """The seconds that the first waiting segment has waited."""
        lag, now_s = self.lag if self.waiting else CopyLag(), trio.current_time()
        return now_s - next((since_s for end, since_s in self.waiting if lag.segments and lag.first < end), now_s)

    def figures(self) -> TieredPartition:
        manifest = self.tier.manifests.newest or Manifest()
        doomed = [one.size_bytes for one in manifest.doomed if one.segment is not None]
        counts = manifest.segment_count, manifest.size_bytes, len(doomed), sum(doomed)
        partition = self.tier.log.partition
        return TieredPartition(partition, self.lag, self.waiting_s, *counts, self.problem, self.is_fenced)


class Uploader:
    """The uploader of a broker."""

    def __init__(self, store: ObjectStore, identity: Identity, options: UploaderOptions, deps: UploaderDeps) -> None:
        self.topics = TopicCounters()
        self._store = store
        self._identity = identity
        self._options = options
        self._deps = deps
        self._rate = CopyRate(options.copy_max_bytes_per_s)
        self._work: dict[TopicIdPartition, _Work] = {}
        self._due: dict[TopicIdPartition, None] = {}
        self._failed: dict[TopicIdPartition, None] = {}
        self._idle = trio.lowlevel.ParkingLot()  # copiers without work wait here
        self._underway: set[TopicIdPartition] = set()

    async def serve(self) -> None:
        """Look for work, and copy, until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._options.copiers):
                nursery.start_soon(self._copy)
            nursery.start_soon(self._try_again)
            while True:
                await self._find_work()
                await trio.sleep(self._options.interval_ms / 1000)

    async def _try_again(self) -> None:
        """Queue failed partitions again after their back-off."""
        while True:
            await trio.sleep(BACK_OFF_MIN_S)
            for partition in list(self._failed):
                work = self._work.get(partition)
                if work is None or trio.current_time() >= work.not_before_s:
                    del self._failed[partition]
                    self._want(partition)

    def _want(self, partition: TopicIdPartition) -> None:
        self._due[partition] = None
        self._idle.unpark()

    def place_of(self, partition: TopicIdPartition) -> Place:
        return Place(self._identity.root, self._identity.cluster_id, partition.topic_id, partition.partition)

    # Read access to the manifests

    def key_of(self, partition: TopicIdPartition, entry: SegmentEntry) -> str:
        return self.place_of(partition).segment(entry)

    async def entries(self, partition: TopicIdPartition) -> Mapping[int, SegmentEntry]:
        manifests = self.catalogue(partition)
        return {one.base: one for one in await manifests.entries(await manifests.load())}

    def catalogue(self, partition: TopicIdPartition) -> ManifestLog:
        """The manifests of a partition, for reads only."""
        return self._manifests(partition, Fence(self._identity.owner_generation, NO_LEADERS_EPOCH))

    # Figures for metrics and status pages

    def partitions(self) -> Iterator[TieredPartition]:
        """The figures of each partition with work, computed during iteration."""
        for work in list(self._work.values()):
            yield work.figures()

    def ailing(self, late_s: float) -> Iterator[TieredPartition]:
        """The figures of the partitions with a problem, or with a segment that waits longer than `late_s`."""
        for work in list(self._work.values()):
            if work.problem is not None or work.waiting_s > late_s:
                yield work.figures()

    # Work

    async def _find_work(self) -> None:
        """Find the partitions that have work."""
        seen = set()
        for number, log in enumerate(self._deps.logs()):
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            if not log.config.remote_storage and log.tiered_to is None:
                continue
            seen.add(log.partition)
            known = self._work.get(log.partition)
            if known is None or known.leader_epoch != log.leader_epoch or not known.tier.log.is_open:
                counted = self.topics.of(log.partition.topic_id)
                problems = Problems(self._deps.on_problem)
                known = self._work[log.partition] = _Work(self._tier_of(log), log.leader_epoch, counted, problems)
            known.note_waiting()
            self._want(log.partition)
        for gone in self._work.keys() - seen:
            del self._work[gone]
        self.topics.keep({one.topic_id for one in seen})

    def _tier_of(self, log: TierableLog) -> PartitionTier:
        fence = Fence(self._identity.owner_generation, log.leader_epoch)
        options = TierOptions(log.config.file_delete_delay_ms, self._options.late_put_ms, self._rate)
        manifests = self._manifests(log.partition, fence)
        return PartitionTier(log, self._store, self.place_of(log.partition), manifests, options, self._deps.now_ms)

    def _manifests(self, partition: TopicIdPartition, fence: Fence) -> ManifestLog:
        deps = self._deps
        author = Author(fence, self._identity.incarnation, lambda: deps.random.randbytes(16).hex(), deps.now_ms)
        return ManifestLog(self._store, self.place_of(partition), author)

    async def _copy(self) -> None:
        while True:
            partition = self._next()
            if partition is None:
                await self._idle.park()
                continue
            self._underway.add(partition)
            try:
                await self._step(partition)
            finally:
                self._underway.discard(partition)

    def _next(self) -> TopicIdPartition | None:
        """The next partition in the queue that no copier works on."""
        found = next((one for one in self._due if one not in self._underway), None)
        if found is not None:
            del self._due[found]
        return found

    async def _step(self, partition: TopicIdPartition) -> None:
        work = self._work.get(partition)
        if work is None or work.is_fenced or trio.current_time() < work.not_before_s:
            return
        try:
            has_more = await self._advance(work)
            await self._collect(work)
        except Fenced as error:
            work.is_fenced = True
            self._report_problem(work, str(error))
        except (StoreError, TierError, EngineError) as error:
            self._note_failure(work, error)
            self._failed[partition] = None
        else:
            work.failures = 0
            work.problems.clear()
            work.problem = None
            if has_more:
                self._due[partition] = None

    async def _advance(self, work: _Work) -> bool:
        """Copy one segment, and delete what is due; returns whether there is more to copy."""
        tier = work.tier
        if not tier.log.config.remote_storage:
            await tier.leave()
            return False
        await tier.confirm()
        await tier.learn()
        await tier.shed()
        await self._delete(work)
        if tier.log.config.remote_copy_disabled:
            return False
        copied = await tier.copy_next()
        if copied is not None:
            work.counted.copied_segments += 1
            work.counted.copied_bytes += copied.put_bytes
        return bool(tier.log.to_copy())

    async def _delete(self, work: _Work) -> None:
        """Delete doomed objects. While this fails, nothing is copied either."""
        try:
            work.counted.deleted += await work.tier.delete()
        except (StoreError, TierError):
            work.counted.delete_errors += 1
            raise

    async def _collect(self, work: _Work) -> None:
        """Delete old manifests at intervals. After a start, the first time is random for each partition."""
        now_s = trio.current_time()
        if work.collect_at_s < 0:
            work.collect_at_s = now_s + COLLECT_INTERVAL_S * self._deps.random.random()
        elif now_s >= work.collect_at_s:
            work.collect_at_s = now_s + COLLECT_INTERVAL_S
            work.counted.collected += await work.tier.manifests.collect()

    def _note_failure(self, work: _Work, error: Exception) -> None:
        work.counted.copy_errors += 1
        back_off_s = min(BACK_OFF_MAX_S, BACK_OFF_MIN_S * 2**work.failures)
        jitter = 1 + JITTER * (2 * self._deps.random.random() - 1)
        work.not_before_s = trio.current_time() + back_off_s * jitter
        work.failures = min(work.failures + 1, 10)
        if not isinstance(error, StoreUnavailable | StorageError | OffsetOutOfRange | CorruptMessage):
            self._report_problem(work, str(error))  # the other errors pass, or were reported where they were found

    def _report_problem(self, work: _Work, problem: str) -> None:
        work.problem = problem
        work.problems.note(f"the remote tier of {work.tier.log.partition.topic}: {problem}")
