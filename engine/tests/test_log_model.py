"""A partition against a model: appends, reads, truncations, kills and restarts in any order.

With `KAFKAWIRE_LOG_MODEL_EXAMPLES` the test is longer, and each run is different.
"""

import dataclasses
import errno
import os
import random
from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import Isolation, OffsetSpec, PendingAppend, ReadResult
from engine.batches.batch import parse_header
from engine.errors import NotLoaded, OffsetOutOfRange, StorageError
from engine.log_config import FlushPolicy, LogConfig
from engine.log_dirs.local_starts import move_local_start
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.tests.index_checks import check_index_equals_walk
from engine.tests.log_model import Model, Send, key_of
from engine.tests.stepwise import Stepwise
from engine.upkeep.retention_task import RetentionOptions, RetentionTask
from testkit.fake_tier import FakeTier
from testkit.logs import (
    NO_JOURNAL,
    NOW_MS,
    ORDERS,
    HeldPool,
    bytes_of,
    offsets_for_key,
    open_orders,
    options,
    read,
    running,
)

EXAMPLES = int(os.environ.get("KAFKAWIRE_LOG_MODEL_EXAMPLES", "50"))
EVERYTHING = Isolation.READ_UNCOMMITTED
LOADS_MAX = 2  # after so many loads a read succeeds
HARMLESS = "as a crash leaves"
MANY = 10_000

times = st.lists(st.integers(0, 3000), min_size=1, max_size=5) | st.builds(lambda time: [time] * 300, st.integers(0, 9))
fresh = st.builds(
    Send,
    st.sampled_from(["plain", "next", "next", "new epoch"]),
    producer_id=st.integers(7, 9),
    times=times,
    choice=st.just(0),
    acks=st.sampled_from([-1, 1]),
)
refused = st.builds(
    Send,
    st.sampled_from(["again", "again", "gap", "old epoch"]),
    producer_id=st.integers(7, 9),
    times=times,
    choice=st.integers(0, 7),
    acks=st.sampled_from([-1, 1]),
)
anywhere = st.integers(0, 1 << 20)  # of the offsets there are


class LogMachine(RuleBasedStateMachine):
    """Each rule changes the log and checks the answer; the invariants check the whole log after each rule."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Stepwise()
        self.filesystem = SimulatedFileSystem()
        self.life = AsyncExitStack()
        self.problems: list[str] = []
        self.pool = HeldPool()
        self.tier = FakeTier()
        self.store: SegmentStore
        self.log: Partition

    @initialize(
        segment_size_bytes=st.sampled_from([5_000, 20_000]),
        segment_age_ms=st.sampled_from([1500, 1 << 40]),
        retention_ms=st.sampled_from([-1, 0, 2500]),
        retention_size_bytes=st.sampled_from([-1, 0, 12_000]),
        flush_policy=st.sampled_from(FlushPolicy),
        flush_messages=st.sampled_from([7, 1 << 40]),
        index_keys=st.booleans(),
        preallocate=st.booleans(),
        slot_size_bytes=st.sampled_from([NO_JOURNAL, 64 * 1024]),
        open_max=st.sampled_from([1, 100]),
    )
    def begin(
        self,
        segment_size_bytes: int,
        segment_age_ms: int,
        retention_ms: int,
        retention_size_bytes: int,
        flush_policy: FlushPolicy,
        flush_messages: int,
        index_keys: bool,
        preallocate: bool,
        slot_size_bytes: int,
        open_max: int,
    ) -> None:
        config = LogConfig(
            segment_size_bytes=segment_size_bytes,
            # Large batches are validated for their keys, and come in commit batches of their own.
            segment_age_ms=1 << 40 if index_keys else segment_age_ms,
            retention_ms=retention_ms,
            retention_size_bytes=retention_size_bytes,
            flush_policy=flush_policy,
            flush_messages=flush_messages,
            index_keys=index_keys,
            preallocate=preallocate,
            file_delete_delay_ms=1000,
        )
        self.model = Model(config)
        never = RetentionOptions(is_time=lambda _: False)
        base = dataclasses.replace(options(journal_slot_size_bytes=slot_size_bytes), retention=never)
        self.options = dataclasses.replace(base, open_files_max=open_max, loaded_indexes_max=open_max)
        self.loop.run(self._open)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.loop.run(self.life.aclose)
        self.loop.close()

    async def _open(self) -> None:
        self.pool = HeldPool()
        life = running(self.filesystem, self.options, pool=self.pool, problems=self.problems, tier=self.tier)
        self.store = await self.life.enter_async_context(life)
        await self._lead()

    async def _lead(self) -> None:
        self.model.leader_epoch += 1
        log = await open_orders(self.store, self.model.config, self.model.leader_epoch)
        assert isinstance(log, Partition)
        self.log = log

    # Requests of clients

    @rule(sends=st.lists(fresh | refused, min_size=1, max_size=6))
    def append(self, sends: list[Send]) -> None:
        """Send several appends at once, which make one commit batch."""
        before = len(self.model.batches)
        expected = [(one, send.acks) for send in sends if (one := self.model.send(send)) is not None]
        self.model.roll(len(self.model.batches) - before)

        async def run() -> None:
            pending = [self._send(one.sent, acks) for one, acks in expected]
            for waiting, (one, _) in zip(pending, expected, strict=True):
                if one.error is None:
                    assert (await waiting.wait()).base_offset == one.base_offset
                else:
                    with pytest.raises(one.error):
                        await waiting.wait()

        self.loop.run(run)

    def _send(self, sent: bytes, acks: int) -> PendingAppend:
        return self.log.append(memoryview(bytearray(sent)), acks=acks)

    @rule(send=fresh)
    def find_the_disk_full(self, send: Send) -> None:
        expected = self.model.send(send)
        assert expected is not None
        self.model.batches.pop()

        async def run() -> None:
            self.filesystem.faults.append(Fault("write", errno.ENOSPC, ".log"))
            with pytest.raises(StorageError, match="no space"):
                await self._send(expected.sent, send.acks).wait()
            assert not self.filesystem.faults

        self.loop.run(run)

    @rule(
        where=anywhere,
        max_size_bytes=st.integers(0, 400) | st.integers(0, 30_000),
        whole=st.booleans(),
        cold=st.booleans(),
    )
    def read_some(self, where: int, max_size_bytes: int, whole: bool, cold: bool) -> None:
        model, offset = self.model, where % (self.model.end + 2)
        if cold:
            self.filesystem.drop_cache()
            self.tier.forget()

        async def run() -> ReadResult:
            for _ in range(LOADS_MAX):
                try:
                    return self.log.read(offset, max_size_bytes, EVERYTHING, at_least_one=whole)
                except NotLoaded:
                    await self.log.load(offset, max_size_bytes)
            return self.log.read(offset, max_size_bytes, EVERYTHING, at_least_one=whole)

        if not model.start <= offset <= model.end:
            with pytest.raises(OffsetOutOfRange):
                self.loop.run(run)
            return
        data = bytes_of(self.loop.run(run).records)
        holding = next((batch for batch in model.batches if batch.next_offset > offset), None)
        if holding is None:
            assert data == b""
            return
        stored = b"".join(batch.stored for batch in model.in_segment_of(holding))
        assert stored.startswith(data)
        assert len(data) <= max(max_size_bytes, len(holding.sent) if whole else 0)
        assert len(data) >= len(holding.sent) or not (whole or max_size_bytes >= len(holding.sent))

    @rule(time=st.integers(-1, 3001))
    def look_up_a_time(self, time: int) -> None:
        wanted_ms = (
            parse_header(self.model.batches[0].sent).base_timestamp_ms + time if self.model.batches else time + 1
        )
        records = self.model.records()
        found = next((one for one in records if one[1] >= wanted_ms), (-1, -1, -1))
        assert self.loop.run(lambda: self._at(wanted_ms)) == found
        newest = max(records, key=lambda one: (one[1], -one[0]), default=(-1, -1, -1))
        assert self.loop.run(lambda: self._at(OffsetSpec.MAX_TIMESTAMP)) == newest

    async def _at(self, timestamp_ms: int) -> tuple[int, int, int]:
        found = await self.log.offset_for_timestamp(timestamp_ms, EVERYTHING)
        return found.offset, found.timestamp_ms, found.leader_epoch

    @rule(time=st.integers(0, 3), limit=st.sampled_from([1, 3, MANY]))
    def look_up_a_key(self, time: int, limit: int) -> None:
        key = key_of(time)
        expected = [offset for offset, time_ms, _ in self.model.records() if key_of(time_ms) == key]
        assert self.loop.run(lambda: offsets_for_key(self.log, key, limit)) == expected[:limit]

    # Truncation and deletion

    @rule(where=anywhere)
    def delete_records(self, where: int) -> None:
        offset = where % (self.model.end + 1)
        self.model.begin_at(offset)
        assert self.loop.run(lambda: self.log.delete_records(offset)) == self.model.start

    @rule(where=anywhere)
    def truncate(self, where: int) -> None:
        offset = where % (self.model.end + 1)
        holding = next((batch for batch in self.model.batches if batch.next_offset > offset), None)
        first_offset = max(self.model.start, self.log.log.local_start_offset)
        if holding is not None and (offset < first_offset or holding.base_offset < self.model.start):
            with pytest.raises(OffsetOutOfRange):
                self.loop.run(lambda: self.store.truncate_partition(ORDERS, offset, below_sealed=True))
            return
        self.model.truncate(offset)
        assert self.loop.run(lambda: self.store.truncate_partition(ORDERS, offset, below_sealed=True)) == self.model.end

    @rule(after_ms=st.integers(0, 6000))
    def retain(self, after_ms: int) -> None:
        now_ms = NOW_MS + after_ms
        self.model.retain(now_ms)
        keeper = RetentionTask(self.log.log_dir, RetentionOptions(), lambda: now_ms)
        self.loop.run(keeper.check)

    @rule(choice=st.integers(0, 3))
    def drop_files(self, choice: int) -> None:
        """Remove local files of segments that the remote tier has; readers must see no difference."""
        tiered_to = self.tier.upload(self.filesystem, self.log)
        finished = [one.end_offset for one in self.log.log.finished_below(tiered_to)]
        if finished:
            offset = finished[choice % len(finished)]
            self.loop.run(lambda: move_local_start(self.log.log_dir, self.log, offset))
            assert self.log.log.local_start_offset == max(offset, self.model.start)

    # Other events

    @rule(seconds=st.sampled_from([0.2, 2.5, 61.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run(partial(trio.sleep, seconds))

    @rule()
    def lead_again(self) -> None:
        self.loop.run(self._lead)

    @rule()
    def restart(self) -> None:
        async def run() -> None:
            cold, local_start = self.log.log.cold.segments, self.log.log.cold.local_start_offset
            bases = [one.base_offset for one in cold]
            await self.store.close()
            await self.life.aclose()
            check_index_equals_walk(self.filesystem, with_last_summary=True, cold=bases, local_start=local_start)
            await self._open()

        self.loop.run(run)
        self.model.open()

    @rule(sends=st.lists(fresh, max_size=5), seed=st.none() | st.integers(0, 99))
    def lose_power(self, sends: list[Send], seed: int | None) -> None:
        """Cut the power in the middle of a commit batch that is written, but neither synced nor answered."""
        durable_offset = self.log.log.durable_offset
        sure = self._start_commit_batch(sends)
        if self.model.config.flush_policy is FlushPolicy.ASYNC:
            sure = sum(batch.next_offset <= durable_offset for batch in self.model.batches)
        self.filesystem.crash(None if seed is None else random.Random(seed))
        self._come_back(sure)

    @rule(sends=st.lists(fresh, max_size=5))
    def kill(self, sends: list[Send]) -> None:
        self._come_back(self._start_commit_batch(sends))

    def _start_commit_batch(self, sends: list[Send]) -> int:
        """Begin a commit batch while syncs are held; returns the number of batches that are answered all the same."""
        before = len(self.model.batches)
        expected = [(one, send.acks) for send in sends if (one := self.model.send(send)) is not None]
        self.model.roll(len(self.model.batches) - before)

        async def run() -> int:
            self.pool.is_holding = True
            pending = [self._send(one.sent, acks) for one, acks in expected]
            await trio.testing.wait_all_tasks_blocked()
            return sum(one.is_settled for one in pending)

        return before + self.loop.run(run)

    def _come_back(self, sure: int) -> None:
        """Restart, and check that the first `sure` batches are there, and perhaps some of the next ones, in order."""
        self.loop.run(self.life.aclose)
        self.loop.run(self._open)
        end = self.log.log_end_offset
        assert end in {0, *(batch.next_offset for batch in self.model.batches)}
        kept = [batch for batch in self.model.batches if batch.next_offset <= end]
        assert len(kept) >= sure, "an acknowledged batch is lost"
        self.model.batches = kept
        rolled = [base for base in self.model.segments if base < end or base == self.model.segments[0]]
        found = [segment.base_offset for segment in self.log.log.all_segments]
        assert found in (self.model.opened(rolled), self.model.opened([*rolled, end]))
        self.model.segments = found

    # Invariants

    @invariant()
    @precondition(lambda self: hasattr(self, "model"))
    def offsets_and_epochs(self) -> None:
        model, log = self.model, self.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (model.start, model.end, model.end)
        for epoch in range(model.leader_epoch + 2):
            assert log.end_offset_for_epoch(epoch) == model.epoch_end(epoch)

    @invariant()
    @precondition(lambda self: hasattr(self, "model"))
    def segments(self) -> None:
        names = [name for name in self.filesystem.list_dir("/data/orders-0") if name.endswith(".log")]
        files = [int(name.removesuffix(".log")) for name in names]
        cold = [segment.base_offset for segment in self.log.log.cold.segments]
        assert [*cold, *files] == self.model.segments
        assert files[0] >= self.log.log.cold.local_start_offset
        spare = [self.filesystem.allocated_bytes(f"/data/orders-0/{name}") for name in names[:-1]]
        assert not any(spare), "only the active segment has more space than it needs"

    @invariant()
    @precondition(lambda self: hasattr(self, "model"))
    def producers(self) -> None:
        """The producer state has all batches above the log start, and perhaps older ones."""
        expected, table = self.model.producers(), dict(self.log.log.producers)
        assert table.keys() <= expected.keys()
        for producer_id, known in expected.items():
            sure = [one for one in known.batches if self.model.is_sure(one)]
            found = table.get(producer_id)
            if found is None:
                assert not sure
            else:
                assert found.epoch == known.epoch
                assert len(sure) <= len(found.batches)
                assert found.batches == known.batches[-len(found.batches) :]

    @invariant()
    @precondition(lambda self: hasattr(self, "model"))
    def every_byte(self) -> None:
        assert self.loop.run(self._read_all) == [batch.stored for batch in self.model.visible]

    @invariant()
    def nothing_is_reported(self) -> None:
        assert [one for one in self.problems if HARMLESS not in one] == []

    async def _read_all(self) -> list[bytes]:
        found: list[bytes] = []
        offset = self.log.log_start_offset
        while offset < self.log.high_watermark:
            data = bytes_of((await read(self.log, offset)).records)
            while data:
                header = parse_header(data)
                found.append(data[: header.size_bytes])
                offset, data = header.next_offset, data[header.size_bytes :]
        return found


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    derandomize="KAFKAWIRE_LOG_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
