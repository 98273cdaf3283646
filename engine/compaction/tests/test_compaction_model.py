"""A compacted log against a list of the records sent, over appends, compaction, deletion, kills and restarts.

The newest record of every key is there, and no record that was never sent, or only in part.

`KAFKAWIRE_LOG_MODEL_EXAMPLES` makes it longer, and each run another one.
"""

import dataclasses
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import Isolation, OffsetSpec, PendingAppend
from engine.batches.batch import Codec
from engine.compaction.cleaning_pass import CleanerOptions
from engine.log_config import CleanupPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.tests.stepwise import Stepwise
from testkit.logs import (
    NO_JOURNAL,
    NOW_MS,
    Dead,
    MortalPool,
    keyed_batch,
    offsets_for_key,
    open_orders,
    options,
    records_in,
    running,
)

EXAMPLES = int(os.environ.get("KAFKAWIRE_LOG_MODEL_EXAMPLES", "25"))
EVERYTHING = Isolation.READ_UNCOMMITTED
HARMLESS = "as a crash leaves"
DELETE_RETENTION_MS = 40_000
BACKOFF_S = 5


class Sent(NamedTuple):
    """A record, by the fields that tell it from all others."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


Keys = Sequence[tuple[int, bool]]  # number of the key, whether it gets a value
batches = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4), st.sampled_from(Codec)),
    min_size=1,
    max_size=5,
)


class CompactedLog(RuleBasedStateMachine):
    """The model: each record sent counts at once; a crash may take back records that were not acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Stepwise()
        self.filesystem = SimulatedFileSystem()
        self.life = AsyncExitStack()
        self.problems: list[str] = []
        self.pool = MortalPool()
        self.sent: list[Sent] = []  # by offset
        self.ends: list[int] = [0]  # of batches
        self.start = 0
        self.epoch = -1
        self.epoch_starts: dict[int, int] = {}
        self.store: SegmentStore
        self.log: Partition

    @initialize(
        segment_size_bytes=st.sampled_from([300, 1000]),
        slot_size_bytes=st.sampled_from([NO_JOURNAL, 64 * 1024]),
        keys_max=st.sampled_from([1, 4, 100]),
        slice_bytes=st.sampled_from([1, 100, 10_000]),
        open_max=st.sampled_from([1, 100]),
        index_keys=st.booleans(),
        bytes_per_s=st.sampled_from([200.0, float("inf")]),
    )
    def begin(
        self,
        segment_size_bytes: int,
        slot_size_bytes: int,
        keys_max: int,
        slice_bytes: int,
        open_max: int,
        index_keys: bool,
        bytes_per_s: float,
    ) -> None:
        self.config = LogConfig(
            segment_size_bytes=segment_size_bytes,
            cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=DELETE_RETENTION_MS,
            file_delete_delay_ms=1000,
            index_keys=index_keys,
            requires_keys=True,
        )
        cleaner = CleanerOptions(
            dedupe_buffer_size_bytes=keys_max * 160,
            io_buffer_size_bytes=slice_bytes,
            io_max_bytes_per_s=bytes_per_s,
            backoff_ms=BACKOFF_S * 1000,
        )
        base = options(journal_slot_size_bytes=slot_size_bytes)
        self.options = dataclasses.replace(
            base, open_files_max=open_max, loaded_indexes_max=open_max, reader_workers=2, cleaner=cleaner
        )
        self.loop.run(self._open)

    def teardown(self) -> None:
        if hasattr(self, "config"):
            self.loop.run(self.life.aclose)
        self.loop.close()

    def _now_ms(self) -> int:
        return NOW_MS + int(trio.current_time() * 1000)

    async def _open(self) -> None:
        self.pool = MortalPool()
        life = running(self.filesystem, self.options, pool=self.pool, problems=self.problems, clock=self._now_ms)
        self.store = await self.life.enter_async_context(life)
        self.epoch += 1
        log = await open_orders(self.store, self.config, self.epoch)
        assert isinstance(log, Partition)
        self.log = log

    # Actions of clients

    @rule(batches=batches)
    def append(self, batches: Sequence[tuple[Keys, Codec]]) -> None:
        async def run() -> None:
            for pending, base_offset in self._send(batches):
                assert (await pending.wait()).base_offset == base_offset

        self.loop.run(run)

    def _send(self, batches: Sequence[tuple[Keys, Codec]]) -> list[tuple[PendingAppend, int]]:
        pending = []
        for keys, codec in batches:
            base_offset, now_ms = len(self.sent), self._now_ms()
            records = [
                Sent(b"key %d" % key, b"value %d" % (base_offset + index) if has_value else None, now_ms - key)
                for index, (key, has_value) in enumerate(keys)
            ]
            self.sent += records
            self.ends.append(len(self.sent))
            self.epoch_starts.setdefault(self.epoch, base_offset)
            batch = keyed_batch(
                *((one.key, one.value) for one in records),
                codec=codec,
                timestamps_ms=[one.timestamp_ms for one in records],
            )
            pending.append((self.log.append(memoryview(batch), acks=-1), base_offset))
        return pending

    @rule(where=st.integers(0, 1 << 20))
    def delete_records(self, where: int) -> None:
        offset = where % (len(self.sent) + 1)
        self.start = max(self.start, offset)
        assert self.loop.run(lambda: self.log.delete_records(offset)) == self.start

    # Other events

    @rule(seconds=st.sampled_from([0.2, BACKOFF_S + 0.1, 30.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run(partial(trio.sleep, seconds))

    @rule()
    def be_compacted(self) -> None:
        """Run passes until the log is clean."""

        async def run() -> None:
            for _ in range(1000):
                if self.log.log.clean_to == self.log.log.active.base_offset:
                    return
                await trio.sleep(BACKOFF_S)

        self.loop.run(run)
        log = self.log.log
        if len(log.segments) > 1 and log.start_offset < log.active.base_offset:
            assert log.clean_to == log.active.base_offset
            offsets = [offset for offset in self.loop.run(self._records) if offset < log.clean_to]
            keys = [self.sent[offset].key for offset in offsets]
            assert len(keys) == len(set(keys)), "of every key there is but one"

    @rule()
    def restart(self) -> None:
        async def run() -> None:
            await self.store.close()
            await self.life.aclose()
            await self._open()

        self.loop.run(run)

    @rule(batches=st.just([]) | batches, seed=st.none() | st.integers(0, 99), seconds=st.sampled_from([0, 0.3, 3]))
    def lose_power(self, batches: Sequence[tuple[Keys, Codec]], seed: int | None, seconds: float) -> None:
        """Crash in the middle of a commit batch, and maybe of a pass."""
        sure = self._start_commit_batch(batches, seconds)
        self.filesystem.crash(None if seed is None else random.Random(seed))
        self._come_back(sure)

    @rule(batches=st.just([]) | batches, seconds=st.sampled_from([0, 0.3, 3]))
    def kill(self, batches: Sequence[tuple[Keys, Codec]], seconds: float) -> None:
        self._come_back(self._start_commit_batch(batches, seconds))

    def _start_commit_batch(self, batches: Sequence[tuple[Keys, Codec]], seconds: float) -> int:
        before = len(self.sent)

        async def run() -> int:
            await trio.sleep(seconds)
            self.pool.is_holding = True
            pending = self._send(batches)
            await trio.testing.wait_all_tasks_blocked()
            answered = [number for number, (one, _) in enumerate(pending) if one.is_settled]
            return before + sum(len(batches[number][0]) for number in answered)

        return self.loop.run(run)

    def _come_back(self, sure: int) -> None:
        self.loop.run(self._die)
        self.loop.run(self._open)
        end = self.log.log_end_offset
        assert end in self.ends
        assert end >= sure, "an acknowledged batch is lost"
        del self.sent[end:]
        self.ends = [one for one in self.ends if one <= end]
        self.epoch_starts = {epoch: start for epoch, start in self.epoch_starts.items() if start < end}

    async def _die(self) -> None:
        self.pool.die()
        try:
            await self.life.aclose()
        except BaseExceptionGroup as group:
            _, others = group.split(Dead)
            if others is not None:
                raise others from None

    # Invariants

    async def _records(self) -> dict[int, Sent]:
        records = await records_in(self.log)
        return {offset: Sent(one.key or b"", one.value, one.timestamp_ms) for offset, one in records.items()}

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def nothing_else_is_lost(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, len(self.sent))
        found = self.loop.run(self._records)
        assert all(self.sent[offset] == one for offset, one in found.items()), "what was sent is what is there"
        last = {one.key: offset for offset, one in enumerate(self.sent)}
        now_ms = self.loop.run(self._clock)
        for offset, one in enumerate(self.sent[self.start :], self.start):
            is_newest = last[one.key] == offset
            may_be_gone = one.value is None and now_ms - one.timestamp_ms > DELETE_RETENTION_MS
            if offset >= self.log.log.compacted_to or (is_newest and not may_be_gone):
                assert offset in found, f"{one} at {offset} is lost"

    async def _clock(self) -> int:
        return self._now_ms()

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def answers_are_those_of_a_scan(self) -> None:
        while not self.loop.run(self._answers_right):
            """A pass went on meanwhile."""

    async def _answers_right(self) -> bool:
        log, before = self.log, self.log.log.replacements
        found = await self._records()
        times_ms = sorted({one.timestamp_ms for one in found.values()})
        for time_ms in {*times_ms[:1], *times_ms[len(times_ms) // 2 :][:1], *times_ms[-1:]}:
            answer = await log.offset_for_timestamp(time_ms, EVERYTHING)
            expected = next(offset for offset, one in found.items() if one.timestamp_ms >= time_ms)
            assert answer.offset == expected or log.log.replacements != before
        greatest = await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING)
        assert greatest.timestamp_ms == max(times_ms, default=-1) or log.log.replacements != before
        for key in (b"key 0", b"key 3"):
            offsets = [offset for offset, one in found.items() if one.key == key]
            assert await offsets_for_key(log, key) == offsets or log.log.replacements != before
        return log.log.replacements == before

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def epochs_are_where_they_began(self) -> None:
        starts = sorted({**self.epoch_starts, self.epoch: self.epoch_starts.get(self.epoch, len(self.sent))}.items())
        for (epoch, _), (_, following) in pairwise(starts):
            if following > self.start:
                assert self.log.end_offset_for_epoch(epoch).end_offset == following

    @invariant()
    def nothing_is_reported(self) -> None:
        assert [one for one in self.problems if HARMLESS not in one] == []


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    derandomize="KAFKAWIRE_LOG_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
