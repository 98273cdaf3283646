"""State logs on the engine: appended records are durable and are read again; each failure is StateLogFailed."""

from __future__ import annotations

import errno
import logging
from random import Random

import pytest
import trio

from coordinator.api import Future
from coordinator.state.log import (
    StateBatch,
    StateLog,
    StateLogFailed,
    StateLogMoved,
    StateLogs,
    StateRecord,
    StateSlice,
)
from engine.api import Leadership
from engine.batches.batch import Codec, Record, RecordHeader, build_batch, seal_batch
from engine.batches.plain_batch import build_plain_batch
from engine.log_config import CleanupPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.replica_log import NEVER
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem, SimulatedPool
from kafkawire.adapters.state_logs import EngineStateLogs
from kafkawire.tests.turns import OtherTask
from testkit.logs import NOW_MS, ORDERS, HeldPool, compressed_batch, open_orders, options, running
from testkit.replicas import others

A, B, GONE = StateRecord(b"a", b"1"), StateRecord(b"b", b""), StateRecord(b"a", None)


async def state_log(store: SegmentStore, config: LogConfig | None = None, leader_epoch: int = 0) -> StateLog:
    await open_orders(store, config, leader_epoch)
    logs: StateLogs = EngineStateLogs(store)
    return await logs.get(*ORDERS)


async def settled(write: Future[int]) -> int:
    """Wait for the result of a write."""
    if not write.is_settled:
        event = trio.Event()
        write.call_when_settled(event.set)
        await event.wait()
    return write.result()


async def taken_over(store: SegmentStore, *, few: bool) -> Partition:
    """A new leader in epoch 1 with A and B of epoch 0 above the high watermark. One replica is in sync if `few`, else
    two; min.insync.replicas is 2."""
    following = await open_orders(store)
    assert isinstance(following, Partition)
    following.follow(LogConfig(), 0)
    batch = bytearray(build_plain_batch([A, B], NOW_MS))
    batch[12:16] = bytes(4)  # its leader epoch
    await following.replicate(memoryview(batch)).wait()
    known = others(1, 2)
    two = known.committed._replace(min_isr=2, in_sync=frozenset({1} if few else {1, 2}))
    known = known._replace(committed=two)
    [log] = await store.open_partitions([Leadership(ORDERS, LogConfig(), 1, known)])
    assert isinstance(log, Partition)
    return log


def in_sync(log: Partition, *brokers: int) -> None:
    replicas = log.followers.replicas
    assert replicas is not None
    log.followers.learn(replicas._committed._replace(version=replicas.version + 1, in_sync=frozenset(brokers)))


def records_of(part: StateSlice) -> list[StateRecord]:
    return [record for batch in part.batches if isinstance(batch, StateBatch) for record in batch.records]


async def read_slice(log: StateLog, offset: int) -> tuple[list[StateRecord], int, int]:
    part = await log.read(offset)
    return records_of(part), part.next_offset, part.leader_epoch


async def everything(log: StateLog, offset: int = 0) -> list[StateRecord]:
    records: list[StateRecord] = []
    while offset < log.end_offset:
        part = await log.read(offset)
        assert part.next_offset > offset
        records += records_of(part)
        offset = part.next_offset
    return records


async def append_stored(store: SegmentStore, *batches: bytearray) -> None:
    for batch in batches:
        await store.get(ORDERS).append(memoryview(batch), acks=-1).wait()


async def test_appended_records_are_read_back_in_order() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store, leader_epoch=4)
        assert (log.topic_id, log.leader_epoch, log.start_offset, log.end_offset) == (ORDERS.topic_id, 4, 0, 0)
        assert await settled(log.append([A, B], NOW_MS)) == 2
        assert await settled(log.append([GONE], NOW_MS)) == 3
        assert log.end_offset == 3
        assert await read_slice(log, 0) == ([A, B, GONE], 3, 4)
        assert await read_slice(log, 1) == ([B, GONE], 3, 4)
        assert await read_slice(log, 3) == ([], 3, -1)


async def test_a_log_that_is_compacted_comes_to_the_same() -> None:
    compacted = LogConfig(
        segment_size_bytes=300,
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=0,
    )
    filesystem = SimulatedFileSystem()
    expected: dict[bytes, bytes | None] = {}
    async with running(filesystem) as store:
        log = await state_log(store, compacted)
        for number in range(60):
            record = StateRecord(b"key %d" % (number % 5), None if number % 5 == 4 else b"%d" % number)
            expected[record.key] = record.value
            await settled(log.append([record], NOW_MS))
            if number % 20 == 19:
                await trio.sleep(16)
        known_to = log.end_offset
        found = await everything(log)
        assert len(found) < 30
        assert {**dict.fromkeys(expected), **dict(found)} == expected
        for offset in range(known_to):
            part = await log.read(offset)
            assert part.next_offset > offset
            assert log.holds(part.leader_epoch, part.next_offset)
    async with running(filesystem) as store:
        log = await state_log(store, compacted, leader_epoch=1)
        assert await everything(log) == found
        assert log.holds(0, known_to)


async def test_an_append_succeeds_only_when_it_is_durable() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await state_log(store)
        pool.is_holding = True
        calls: list[str] = []
        write = log.append([A], NOW_MS)
        write.call_when_settled(lambda: calls.append("settled"))
        await trio.testing.wait_all_tasks_blocked()
        assert not write.is_settled
        assert log.end_offset == 0
        assert await read_slice(log, 0) == ([], 0, -1)
        pool.release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert calls == ["settled"]
        assert (write.result(), log.end_offset) == (1, 1)


async def test_there_is_room_again_when_others_have_been_written() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), options(queue_max_bytes=300), pool=pool) as store:
        log = await state_log(store)
        await log.wait_for_room()
        pool.is_holding = True
        write = log.append([StateRecord(b"k", bytes(200))], NOW_MS)
        with pytest.raises(StateLogFailed):
            log.append([StateRecord(b"k", bytes(200))], NOW_MS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.wait_for_room)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            pool.release.set()
        assert write.result() == 1


async def test_a_long_log_is_read_in_parts_and_others_run_meanwhile() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store, LogConfig(segment_size_bytes=1 << 20))
        records = [StateRecord(b"%d" % number, bytes(100)) for number in range(20_000)]
        for start in range(0, len(records), 5000):
            await settled(log.append(records[start : start + 5000], NOW_MS))
        other = OtherTask()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            assert await everything(log) == records
            nursery.cancel_scope.cancel()
        assert other.turns >= 20
        assert await everything(log, 7001) == records[7001:]


async def test_batches_of_other_writers_are_read_and_records_without_a_key_are_skipped() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store)
        for codec in Codec:
            await append_stored(store, compressed_batch(codec, [Record(b"k", b"%d" % codec, NOW_MS)] * 3))
        await append_stored(store, build_batch([Record(None, b"no key", NOW_MS)]))
        await append_stored(store, build_batch([Record(b"h", b"1", NOW_MS, (RecordHeader(b"x", None),))]))
        found = await everything(log)
        assert found == [*(StateRecord(b"k", b"%d" % codec) for codec in Codec for _ in range(3)), (b"h", b"1")]
        assert await everything(log, 4) == found[4:]


async def test_control_batches_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store)
        await settled(log.append([A], NOW_MS))
        monkeypatch.setattr(
            "engine.batches.batch.CONTROL_BIT", 1 << 9
        )  # as for the engine's own, which no client may write
        await append_stored(store, build_batch([Record(b"\0\0\0\1", bytes(6), NOW_MS)], attributes=1 << 5))
        monkeypatch.undo()
        assert await read_slice(log, 0) == ([A], 2, 0)
        assert await read_slice(log, 1) == ([], 2, 0)


@pytest.mark.parametrize("kind", ["write", "fdatasync"])
async def test_a_failing_disk_fails_the_log(kind: str) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await state_log(store)
        await settled(log.append([A], NOW_MS))
        filesystem.faults.append(Fault(kind, errno.EIO))
        write = log.append([B], NOW_MS)
        with pytest.raises(StateLogFailed):
            await settled(write)
        with pytest.raises(StateLogFailed):
            log.append([B], NOW_MS)
        with pytest.raises(StateLogFailed):
            await log.read(0)
        with pytest.raises(StateLogFailed):
            log.holds(0, 1)
        with pytest.raises(StateLogFailed):
            await EngineStateLogs(store).get(*ORDERS)


@pytest.mark.parametrize("skip", range(2))
async def test_a_disk_that_cannot_be_read_fails_the_log(skip: int) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await state_log(store)
        await settled(log.append([A], NOW_MS))
        filesystem.faults.append(Fault("read", errno.EIO, ".log", skip, is_lasting=True))
        with pytest.raises(StateLogFailed):
            await log.read(0)


async def test_records_that_lie_fail_the_log() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store)
        body = b"\xff" * 20
        times, no_producer = (NOW_MS, NOW_MS), (-1, -1, -1)
        batch = seal_batch(
            body, record_count=1, base_offset=0, leader_epoch=0, attributes=0, timestamps_ms=times, producer=no_producer
        )
        await append_stored(store, batch)
        with pytest.raises(StateLogFailed):
            await log.read(0)


async def test_a_log_of_a_missing_or_deleted_partition_raises_state_log_failed() -> None:
    async with running(SimulatedFileSystem()) as store:
        with pytest.raises(StateLogFailed):
            await EngineStateLogs(store).get(*ORDERS)
        log = await state_log(store)
        await store.delete_partition(ORDERS)
        with pytest.raises(StateLogFailed):
            log.append([A], NOW_MS)


# One log at a time


async def test_c1_a_reopened_log_has_appends_in_flight_and_the_old_handle_fails() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        await open_orders(store)
        logs = EngineStateLogs(store)
        old = await logs.get(*ORDERS)
        pool.is_holding = True
        writes = [old.append([record], NOW_MS) for record in (A, B)]
        loaded: list[StateLog] = []

        async def get() -> None:
            loaded.append(await logs.get(*ORDERS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            nursery.start_soon(get)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(StateLogFailed):
                old.append([GONE], NOW_MS)
            assert loaded == []
            pool.release.set()
        assert [write.result() for write in writes] == [1, 2]
        first, second = loaded
        with pytest.raises(StateLogFailed):
            await first.read(0)
        assert await everything(second) == [A, B]
        assert await settled(second.append([GONE], NOW_MS)) == 3


async def test_a_takeover_does_not_wait_for_the_last_append_of_another_partition() -> None:
    """The disk of the other partition may hang, or its followers be away."""
    pool, other = SimulatedPool(), ORDERS._replace(partition=1)
    async with running(SimulatedFileSystem(), options("/a", "/b"), pool=pool) as store, trio.open_nursery() as nursery:
        on_a, logs = await open_orders(store), EngineStateLogs(store)
        await store.open_partition(other, LogConfig(), 0)
        assert isinstance(on_a, Partition)
        assert on_a.log_dir.disk.path == "/a"
        first = await logs.get(*ORDERS)
        pool.delays.hang(on_a.log_dir.disk.workers.all)
        write = first.append([A], NOW_MS)
        nursery.start_soon(logs.get, *ORDERS)
        await trio.testing.wait_all_tasks_blocked()
        try:
            with trio.fail_after(1):
                second = await logs.get(*other)
            assert await settled(second.append([B], NOW_MS)) == 1
            assert not write.is_settled
        finally:
            pool.delays.set(on_a.log_dir.disk.workers.all)


async def test_k26_a_log_loads_to_its_end_with_too_few_in_sync_replicas() -> None:
    """The high watermark is below the start of the epoch: the records there came from the leader before."""
    async with running(SimulatedFileSystem()) as store:
        log = await taken_over(store, few=True)
        with trio.fail_after(1):
            loaded = await EngineStateLogs(store).get(*ORDERS)
        assert (loaded.end_offset, loaded.load_end_offset, loaded.takes_writes) == (0, 2, False)
        assert await read_slice(loaded, 0) == ([A, B], 2, 0)
        assert loaded.holds(0, 2)
        assert not loaded.holds(0, 3)
        in_sync(log, 1, 2)
        log.followers.fetched(2, 0, leader_epoch=1, offset=2, last_epoch=0, log_start_offset=0, as_of=NEVER)
        assert (loaded.end_offset, loaded.load_end_offset, loaded.takes_writes) == (2, 2, True)


async def test_k26_a_log_with_enough_in_sync_is_given_when_the_high_watermark_is_there() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await taken_over(store, few=False)
        loaded: list[StateLog] = []

        async def get() -> None:
            loaded.append(await EngineStateLogs(store).get(*ORDERS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(get)
            await trio.sleep(60)
            assert not loaded
            log.followers.fetched(2, 0, leader_epoch=1, offset=2, last_epoch=0, log_start_offset=0, as_of=NEVER)
        assert loaded[0].load_end_offset == loaded[0].end_offset == 2


async def test_k26_a_log_with_a_full_isr_loads_beyond_a_lagging_high_watermark() -> None:
    """A replica came back, and has not fetched yet."""
    async with running(SimulatedFileSystem()) as store:
        log = await taken_over(store, few=True)
        loaded = await EngineStateLogs(store).get(*ORDERS)
        in_sync(log, 1, 2)
        assert (loaded.end_offset, loaded.load_end_offset, loaded.takes_writes) == (0, 2, True)


async def test_k26_a_log_is_reopened_while_its_last_append_cannot_be_committed() -> None:
    async with running(SimulatedFileSystem()) as store:
        log, logs = await taken_over(store, few=False), EngineStateLogs(store)
        log.followers.fetched(2, 0, leader_epoch=1, offset=2, last_epoch=0, log_start_offset=0, as_of=NEVER)
        write = (await logs.get(*ORDERS)).append([GONE], NOW_MS)
        in_sync(log, 1)
        with trio.fail_after(5):
            loaded = await logs.get(*ORDERS)
        assert not write.is_settled
        assert (loaded.end_offset, loaded.load_end_offset) == (2, 3)
        assert await read_slice(loaded, 2) == ([GONE], 3, 1)


async def test_c1_a_log_of_an_older_leader_epoch_raises_state_log_moved() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store, leader_epoch=1)
        await open_orders(store, leader_epoch=2)
        with pytest.raises(StateLogMoved, match="orders-0 has a newer leader"):
            log.append([A], NOW_MS)
        with pytest.raises(StateLogMoved):
            await log.read(0)
        with pytest.raises(StateLogMoved):
            log.holds(-1, 0)


async def test_a_moved_log_error_has_level_info_and_a_failed_log_error_warning() -> None:
    """A log that another broker leads now is normal whenever a broker stops."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await open_orders(store, leader_epoch=0)
        store.replica(ORDERS).follow(LogConfig(), 1)
        with pytest.raises(StateLogMoved) as moved:
            await EngineStateLogs(store).get(*ORDERS)
        log = await state_log(store, leader_epoch=2)
        filesystem.faults.append(Fault("fdatasync", errno.EIO))
        with pytest.raises(StateLogFailed) as failed:
            await settled(log.append([A], NOW_MS))
        assert (moved.value.level, failed.value.level) == (logging.INFO, logging.WARNING)


# Positions that a cache of coordinator state may go on from


async def test_c2_a_log_holds_ends_that_were_read_also_in_later_epochs() -> None:
    filesystem = SimulatedFileSystem()
    ends: list[tuple[int, int]] = [(-1, 0)]
    for epoch in (0, 2, 3, 7):
        async with running(filesystem) as store:
            log = await state_log(store, leader_epoch=epoch)
            assert all(log.holds(*end) for end in ends)
            if epoch != 3:  # nothing is written in every epoch
                ends.append((epoch, await settled(log.append([A, B], NOW_MS))))
            part = await log.read(log.end_offset - 1)
            assert (part.leader_epoch, part.next_offset) == ends[-1]
            assert all(log.holds(*end) for end in ends)
            for wrong in [(-1, 1), (9, 2), (1, 2), (0, 3), (ends[-1][0], log.end_offset + 1)]:
                assert not log.holds(*wrong)


async def test_c2_a_log_does_not_hold_an_end_that_was_truncated() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await state_log(store)
        await settled(log.append([A], NOW_MS))
        await settled(log.append([B], NOW_MS))
        await store.truncate_partition(ORDERS, 1, below_sealed=True)
        assert log.holds(0, 1)
        assert not log.holds(0, 2)
    async with running(filesystem) as store:
        log = await state_log(store, leader_epoch=1)
        await settled(log.append([GONE], NOW_MS))
        assert log.holds(1, 2)
        assert not log.holds(0, 2), "the second record is another one"


@pytest.mark.parametrize("seed", range(10))
async def test_a_power_cut_takes_nothing_that_was_settled(seed: int) -> None:
    filesystem = SimulatedFileSystem()
    random = Random(seed)
    async with running(filesystem) as store:
        log = await state_log(store)
        writes = [log.append([StateRecord(b"%d" % number, b"")], NOW_MS) for number in range(random.randint(1, 30))]
        end = await settled(writes[random.randrange(len(writes))])
        filesystem.crash(random)
    async with running(filesystem) as store:
        log = await state_log(store, leader_epoch=1)
        assert log.end_offset >= end
        assert log.holds(0, end)
        assert await everything(log) == [StateRecord(b"%d" % number, b"") for number in range(log.end_offset)]


async def test_a_log_does_not_hold_an_end_below_its_start_offset() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store)
        for _ in range(4):
            await settled(log.append([A], NOW_MS))
        await store.get(ORDERS).delete_records(2)
        assert log.start_offset == 2
        assert [log.holds(0, offset) for offset in (1, 2, 3, 4)] == [False, True, True, True]
        assert [log.holds(-1, offset) for offset in (0, 2)] == [False, True]
        assert await everything(log, 2) == [A, A]


# Sizes


async def test_topic_config_bounds_the_batch_size_and_segment_size_bounds_a_record() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store, LogConfig(max_message_size_bytes=5000, segment_size_bytes=3000))
        assert log.batch_size_max_bytes == 3000
        log = await state_log(store, LogConfig(max_message_size_bytes=2000, segment_size_bytes=3000))
        assert log.batch_size_max_bytes == 2000
        room = log.batch_size_max_bytes - log.batch_overhead_bytes - log.size_of(StateRecord(b"", b""))
        await settled(log.append([StateRecord(b"k", bytes(room - 1))], NOW_MS))
        await settled(log.append([StateRecord(b"k", bytes(2000))], NOW_MS))  # a decided record has to be written
        with pytest.raises(StateLogFailed):
            log.append([StateRecord(b"k", bytes(3000))], NOW_MS)
        assert await settled(log.append([A], NOW_MS)) == 3


async def test_sizes_are_upper_bounds_and_not_far_off() -> None:
    random = Random(1)
    async with running(SimulatedFileSystem()) as store:
        log = await state_log(store)
        for _ in range(50):
            records = [
                StateRecord(
                    random.randbytes(random.randrange(300)), random.choice([None, bytes(random.randrange(9000))])
                )
                for _ in range(random.choice([1, 70, 200]))
            ]
            size_bytes = log.batch_overhead_bytes + sum(map(log.size_of, records))
            batch = build_batch([Record(record.key, record.value, NOW_MS) for record in records])
            assert size_bytes - 20 * len(records) <= len(batch) <= size_bytes
