"""A running store whose file operations are recorded, for the workloads and the examinations of images."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from random import Random

import trio
import trio.testing

import engine.commit.group_committer
import engine.logs.segments.segment
import engine.logs.segments.sparse_index
from engine.api import Leadership, Marker, Outcome, PartitionLog, PendingAppend
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.batches.markers import build_marker
from engine.compaction.cleaning_pass import CleanerOptions
from engine.errors import EngineError
from engine.log_config import CleanupPolicy, FlushPolicy, LogConfig
from engine.options import StoreDeps, StoreOptions
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedPool
from engine.testing.simulated_index import SimulatedIndexStore
from engine.tests.crash_states.timeline import Batch, Event, RecordingFileSystem, Timeline
from engine.tests.crash_states.transactions import PRODUCERS
from testkit.fake_tier import FakeTier

NOW_MS = 1_700_000_000_000
INDEX_INTERVAL_BYTES = 200  # segments are small: with the usual interval the index would have their first batches only
INDEX_INTERVAL_RECORDS = 2
OVERLAP_MIN_BYTES = (1, 300, engine.commit.group_committer.OVERLAP_MIN_BYTES)  # one of these, by seed
OPTIONS = StoreOptions(
    ("/data",),
    "cluster",
    1,
    journal_slot_size_bytes=5 * 4096,
    open_files_max=4,
    loaded_indexes_max=2,
    cleaner=CleanerOptions(io_buffer_size_bytes=500, backoff_ms=10_000),
)
RETENTION_MS = 5000
SYNC = LogConfig(segment_size_bytes=900, file_delete_delay_ms=1000, retention_ms=RETENTION_MS)
ASYNC = replace(SYNC, flush_policy=FlushPolicy.ASYNC, flush_interval_ms=2000)


COMPACTED = replace(
    SYNC,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=1,  # and the clock stands still
    requires_keys=True,
)


def config_of(timeline: Timeline) -> LogConfig:
    return COMPACTED if timeline.is_compacted else ASYNC if timeline.is_async else SYNC


def schedule_by(seed: int) -> None:
    """Make the schedule of the next run of trio repeatable."""
    vars(trio._core._run)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    trio._core._run._r.seed(seed)


def run_seeded(main: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run `main` with a simulated clock and a repeatable schedule."""
    schedule_by(seed)
    with _all_small(seed):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def _all_small(seed: int) -> Iterator[None]:
    """Set small limits: index entries for every few records, and writes while a sync is in flight."""
    index, segment = vars(engine.logs.segments.sparse_index), vars(engine.logs.segments.segment)
    small: list[tuple[dict[str, object], dict[str, object]]] = [
        (index, {"INTERVAL_BYTES": INDEX_INTERVAL_BYTES}),
        (segment, {"INTERVAL_BYTES": INDEX_INTERVAL_BYTES, "INTERVAL_RECORDS": INDEX_INTERVAL_RECORDS}),
        (
            vars(engine.commit.group_committer),
            {"OVERLAP_MIN_BYTES": OVERLAP_MIN_BYTES[seed % len(OVERLAP_MIN_BYTES)]},
        ),
    ]
    before = [{name: module[name] for name in values} for module, values in small]
    for module, values in small:
        module.update(values)
    try:
        yield
    finally:
        for (module, _), values in zip(small, before, strict=True):
            module.update(values)


@dataclass
class Life:
    """A running store and the partitions opened in it."""

    store: SegmentStore
    filesystem: RecordingFileSystem
    rng: Random
    leader_epoch: int
    indexes: list[SimulatedIndexStore]  # as they were opened, the last is in use
    tier: FakeTier
    logs: dict[Timeline, PartitionLog] = field(default_factory=dict)

    @property
    def now(self) -> int:
        return len(self.filesystem.operations)

    async def open(self, timeline: Timeline) -> PartitionLog:
        await self.open_all([timeline])
        return self.logs[timeline]

    async def open_all(self, timelines: Sequence[Timeline]) -> None:
        wanted = [Leadership(one.partition, config_of(one), self.leader_epoch) for one in timelines]
        for timeline, log in zip(timelines, await self.store.open_partitions(wanted), strict=True):
            if isinstance(log, EngineError):
                raise log
            timeline.log = self.logs[timeline] = log

    def send(self, timeline: Timeline, batch: Batch, *, acks: int = -1) -> PendingAppend:
        """Append a batch that continues the log."""
        pending = self.logs[timeline].append(memoryview(bytearray(batch.sent)), acks=acks)
        timeline.events.append(Event((*timeline.latest, batch), self.now, pending=[pending]))
        return pending

    def end_transaction(self, timeline: Timeline, producer_id: int, outcome: Outcome) -> PendingAppend:
        """Append a marker; perhaps no transaction is open."""
        marker = Marker(producer_id, 0, 0, outcome)
        sent = bytes(build_marker(marker, NOW_MS))
        batch = Batch(timeline.end_offset, (NOW_MS,), sent, self.leader_epoch, producer_id, outcome=outcome)
        pending = self.logs[timeline].end_transaction(marker)
        timeline.events.append(Event((*timeline.latest, batch), self.now, pending=[pending]))
        return pending

    def next_batch(self, timeline: Timeline, producer_id: int = -1) -> Batch:
        """A random batch that continues the log, of that producer."""
        count = self.rng.choice((1, 1, 2, 5))
        times = tuple(NOW_MS + self.rng.randrange(1000) for _ in range(count))
        sequence = next_sequence(timeline, producer_id) if producer_id >= 0 else -1
        records = [Record(None, self.rng.randbytes(self.rng.choice((3, 40, 150))), time) for time in times]
        if timeline.is_compacted:
            records = [self._keyed(one) for one in records]
        producer = producer_id, 0 if producer_id >= 0 else -1, sequence
        attributes = TRANSACTIONAL_BIT if producer_id in PRODUCERS else 0
        sent = build_batch(records, attributes=attributes, producer=producer)
        keyed = tuple((one.key or b"", one.value) for one in records)
        return Batch(timeline.end_offset, times, bytes(sent), self.leader_epoch, producer_id, sequence, keyed)

    def _keyed(self, record: Record) -> Record:
        """The record with a few keys that are frequent, and many that are rare: tombstones of rare keys stay the newest
        record of their key."""
        number = self.rng.choice((0, 1, 2, 3, self.rng.randrange(4, 30)))
        return record._replace(key=b"key %d" % number, value=None if self.rng.random() < 0.3 else record.value)


def next_sequence(timeline: Timeline, producer_id: int) -> int:
    for batch in reversed(timeline.latest):
        if batch.producer_id == producer_id and batch.outcome is None:
            return batch.sequence + len(batch.timestamps_ms)
    return 0


@asynccontextmanager
async def living(
    filesystem: RecordingFileSystem, seed: int, leader_epoch: int, problems: list[str], tier: FakeTier
) -> AsyncIterator[Life]:
    """Run a store in the block; leaving the block without closing the store is a kill."""
    fatal: list[str] = []
    random = Random(seed)
    indexes: list[SimulatedIndexStore] = []

    def open_index(directory: str) -> SimulatedIndexStore:
        indexes.append(SimulatedIndexStore(filesystem, directory))
        return indexes[-1]

    world = StoreDeps(
        filesystem, open_index, SimulatedPool(), random, lambda: NOW_MS, fatal.append, problems.append, tier
    )
    store = SegmentStore(OPTIONS, world)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        try:
            yield Life(store, filesystem, Random(seed), leader_epoch, indexes, tier)
        finally:
            nursery.cancel_scope.cancel()
            filesystem.end_process()
    assert not fatal, fatal
