"""A seeded run of the engine without any crash. Its file operations are recorded, to make crash images of them.

Several partitions, of sync topics and of an async one, idempotent producers with retries in flight, transactions,
rolls, commit batches with and without the journal, checkpoints, snapshots, the index, DeleteRecords, retention,
compaction, truncations, resets, deletions, clean stops and kills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from random import Random

import trio

from engine.api import Outcome, PendingAppend, TopicIdPartition
from engine.log_dirs.local_starts import move_local_start
from engine.partitions.partition import Partition
from engine.tests.crash_states.life import NOW_MS, RETENTION_MS, Life, living, run_seeded
from engine.tests.crash_states.timeline import NEVER, Content, Event, RecordingFileSystem, Timeline
from engine.tests.crash_states.transactions import PRODUCERS
from engine.upkeep.retention_task import RetentionOptions, RetentionTask
from testkit.fake_tier import FakeTier
from testkit.logs import fates

PARTITIONS = 4
ASYNC_PARTITION = PARTITIONS - 1
COMPACTED_PARTITION = PARTITIONS - 2
LIVES = 3
STEPS_PER_LIFE = 12
WITH_TRANSACTIONS = 0.6  # share of the workloads: while a transaction is open, no record behind it is compacted


@dataclass
class Workload:
    """A finished workload: its operations, and the expected content."""

    seed: int
    filesystem: RecordingFileSystem = field(default_factory=RecordingFileSystem)
    timelines: list[list[Timeline]] = field(default_factory=list)  # of each partition number, one per topic id
    leader_epoch: int = 0
    senders: tuple[int, ...] = (-1, 7, 8)  # producer ids
    tier: FakeTier = field(default_factory=FakeTier)


def run(seed: int) -> Workload:
    workload = Workload(seed)
    run_seeded(partial(_run, workload), seed)
    return workload


def new_timeline(workload: Workload, number: int) -> Timeline:
    generation = len(workload.timelines[number])
    partition = TopicIdPartition(bytes([number, generation] * 8), f"topic{number}", number)
    is_async = number == ASYNC_PARTITION
    timeline = Timeline(
        partition, is_async, len(workload.filesystem.operations), is_compacted=number == COMPACTED_PARTITION
    )
    workload.timelines[number].append(timeline)
    workload.filesystem.timelines.append(timeline)
    return timeline


async def _run(workload: Workload) -> None:
    rng = Random(workload.seed)
    if rng.random() < WITH_TRANSACTIONS:
        workload.senders += PRODUCERS * 2
    workload.timelines = [[] for _ in range(PARTITIONS)]
    for number in range(PARTITIONS):
        new_timeline(workload, number)
    for number in range(LIVES):
        problems: list[str] = []
        seed, tier = workload.seed * 100 + number, workload.tier
        async with living(workload.filesystem, seed, workload.leader_epoch, problems, tier) as life:
            await _Steps(workload, life, rng).run()
            if rng.random() < 0.6:
                await life.store.close()
        for timelines in workload.timelines:
            timelines[-1].log = None
        workload.leader_epoch += 1
        problems = [one for one in problems if "is a stray" not in one]  # the workload makes strays
        assert not problems, problems


class _Steps:
    """The steps of one run of the broker."""

    def __init__(self, workload: Workload, life: Life, rng: Random) -> None:
        self._workload = workload
        self._life = life
        self._rng = rng

    async def run(self) -> None:
        await self._life.store.strays.apply_fates(
            fates(lambda topic_id, _: any(one[-1].partition.topic_id == topic_id for one in self._workload.timelines))
        )
        await self._life.open_all([timelines[-1] for timelines in self._workload.timelines])
        steps = [self._burst] * 6 + [self._wait] * 3
        steps += [self._delete_records, self._retain, self._truncate, self._delete, self._reset]
        steps += [self._drop_files] * 2
        steps += [self._vanish] * 2 if self._workload.seed % 4 == 2 else []
        for _ in range(STEPS_PER_LIFE):
            await self._rng.choice(steps)()

    def _draw(self) -> Timeline:
        return self._rng.choice(self._workload.timelines)[-1]

    async def _burst(self) -> None:
        """Send several appends that share commit batches, some of them retries of appends still in flight."""
        rng, pending = self._rng, list[tuple[PendingAppend, int]]()
        for _ in range(rng.randint(1, 6)):
            timeline = self._draw()
            producer_id = rng.choice(self._workload.senders)
            ends = 0.6 if timeline.is_compacted else 0.4  # open transactions hold compaction back
            if producer_id in PRODUCERS and rng.random() < ends:
                end_offset = timeline.end_offset
                outcome = rng.choice((Outcome.ABORT, Outcome.ABORT, Outcome.COMMIT))
                pending.append((self._life.end_transaction(timeline, producer_id, outcome), end_offset))
                continue
            batch = self._life.next_batch(timeline, producer_id)
            pending.append((self._life.send(timeline, batch, acks=rng.choice((-1, 1))), batch.base_offset))
            if batch.producer_id >= 0 and rng.random() < 0.3:
                pending.append((self._retry(timeline), batch.base_offset))
            if rng.random() < 0.2:
                await trio.lowlevel.checkpoint()
        for one, base_offset in pending:
            assert (await one.wait()).base_offset == base_offset
        self._workload.filesystem.look()

    def _retry(self, timeline: Timeline) -> PendingAppend:
        batch = timeline.latest[-1]
        pending = self._life.logs[timeline].append(memoryview(bytearray(batch.sent)), acks=-1)
        timeline.events[-1].pending.append(pending)
        return pending

    async def _wait(self) -> None:
        await trio.sleep(self._rng.choice((0.2, 2.5, 61)))

    async def _delete_records(self) -> None:
        timeline = self._draw()
        offset = self._rng.randint(timeline.latest_start, max(timeline.latest_start, timeline.end_offset))
        if offset > timeline.latest_start:
            timeline.starts.append((offset, self._life.now, NEVER))
            await self._life.logs[timeline].delete_records(offset)
            self._workload.filesystem.look()

    async def _retain(self) -> None:
        """Run retention at a time at which records may have expired. The expectation uses only the segments' base
        offsets."""
        now_ms = NOW_MS + self._rng.choice((RETENTION_MS, RETENTION_MS + 400, RETENTION_MS + 700, RETENTION_MS + 1000))
        expected = {}
        for timelines in self._workload.timelines:
            if timelines[-1].is_compacted:
                continue
            offset = _expired_to(self._log(timelines[-1]), timelines[-1].latest, now_ms)
            expected[timelines[-1]] = max(offset, timelines[-1].latest_start)
            if offset > timelines[-1].latest_start:
                timelines[-1].starts.append((offset, self._life.now, NEVER))
        [log_dir] = {self._log(timelines[-1]).log_dir for timelines in self._workload.timelines}
        await RetentionTask(log_dir, RetentionOptions(), lambda: now_ms).check()
        self._workload.filesystem.look()
        for timeline, offset in expected.items():
            found = self._log(timeline).log_start_offset
            assert found == offset, f"retention has moved the log start to {found}, not to {offset}"

    def _log(self, timeline: Timeline) -> Partition:
        log = self._life.logs[timeline]
        assert isinstance(log, Partition)
        return log

    async def _truncate(self) -> None:
        """Truncate one log, or several at once."""
        offsets, events = dict[TopicIdPartition, int](), list[Event]()
        for timelines in self._rng.sample(self._workload.timelines, self._rng.choice((1, 2, PARTITIONS))):
            timeline = timelines[-1]
            first_offset = max(timeline.latest_start + 1, self._log(timeline).log.local_start_offset)
            above = [batch for batch in timeline.latest if batch.base_offset >= first_offset]
            if not above or timeline.is_compacted:  # a truncation would miss the records that compaction replaced
                continue
            first = self._rng.choice((above[-1], self._rng.choice(above)))  # only the journal may have the last ones
            offset = self._rng.randrange(first.base_offset, first.next_offset)
            kept = tuple(batch for batch in timeline.latest if batch.next_offset <= offset)
            events.append(Event(kept, self._life.now, is_cut=True))
            timeline.events.append(events[-1])
            offsets[timeline.partition] = offset
        errors = await self._life.store.truncate_partitions(offsets, below_sealed=True)
        assert errors == [None] * len(offsets)
        for event in events:
            event.answered_at = min(event.answered_at, self._life.now)

    async def _drop_files(self) -> None:
        """Remove local files of segments that the remote tier has; all records can still be read."""
        timeline = self._draw()
        log, filesystem = self._log(timeline), self._workload.filesystem
        if timeline.is_compacted:  # Kafka, too, has no compacted topics in a tier
            return
        tiered_to = self._workload.tier.upload(filesystem, log, moment=self._life.now)
        finished = [one.end_offset for one in log.log.finished_below(tiered_to)]
        if finished:
            await move_local_start(log.log_dir, log, self._rng.choice(finished))

    async def _reset(self) -> None:
        timeline = self._draw()
        offset = self._rng.randint(timeline.latest_start, timeline.end_offset + 5)
        event = Event((), self._life.now, is_cut=True)
        timeline.events.append(event)
        timeline.starts.append((offset, self._life.now, NEVER))
        await self._life.store.reset_partition(timeline.partition, offset)
        event.answered_at = min(event.answered_at, self._life.now)
        self._workload.filesystem.look()

    async def _vanish(self) -> None:
        """Let the metadata name no partition, and then all again, in another epoch: all records are there (RULES
        D3)."""
        timelines = [one[-1] for one in self._workload.timelines]
        logs = [self._log(one) for one in timelines]
        if any(one.log.local_start_offset > one.log_start_offset for one in logs):
            return  # segments that only the tier has are read after the uploader has named them; there is none here
        partitions, strays = [one.partition for one in timelines], self._life.store.strays
        await strays.set_aside(partitions)
        self._workload.filesystem.look()
        if self._rng.random() < 0.5:
            await self._wait()
        assert (await strays.put_back(partitions)).keys() == set(partitions)
        self._workload.leader_epoch += 1
        self._life.leader_epoch = self._workload.leader_epoch
        await self._life.open_all(timelines)
        self._workload.filesystem.look()

    async def _delete(self) -> None:
        """Delete one partition, or several at once, and create them again under the same names."""
        deleted = [one[-1] for one in self._rng.sample(self._workload.timelines, self._rng.choice((1, 2, PARTITIONS)))]
        for timeline in deleted:
            timeline.delete_asked_at = self._life.now
        errors = await self._life.store.delete_partitions([one.partition for one in deleted])
        assert errors == [None] * len(deleted)
        for timeline in deleted:
            timeline.delete_answered_at = self._life.now
        await self._life.open_all([new_timeline(self._workload, one.partition.partition) for one in deleted])


def _expired_to(log: Partition, content: Content, now_ms: int) -> int:
    """The base offset of the first segment with a record that has not expired; else the log end."""
    bases = [segment.base_offset for segment in log.log.all_segments]
    for base, end in pairwise([*bases, log.log_end_offset]):
        times_ms = [time for batch in content if base <= batch.base_offset < end for time in batch.timestamps_ms]
        if not times_ms or now_ms - max(times_ms) <= RETENTION_MS:
            return base
    return log.log_end_offset
