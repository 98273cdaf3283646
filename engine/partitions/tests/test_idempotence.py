"""Idempotent producers on a log: a retried batch is stored once, also after crashes and role changes (RULES L2)."""

import errno
import random

import pytest
import trio
import trio.testing

from engine.api import Marker, Origin, Outcome, PartitionLog, PendingAppend
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.batches.markers import build_marker
from engine.errors import InvalidRecord, OutOfOrderSequence, Overloaded, StorageError
from engine.log_config import CompressionType, FlushPolicy, LogConfig
from engine.logs.producers.recovery import recover_producers
from engine.logs.producers.snapshot import snapshot_offsets
from engine.logs.recovery.checkpoints import read_checkpoint
from engine.logs.recovery.recovery import LastKnown, open_log
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import NO_JOURNAL, NOW_MS, ORDERS, HeldPool, open_orders, options, read_all, running

ROLLING = LogConfig(segment_size_bytes=400)


def send(log: PartitionLog, sequence: int, *, acks: int = -1, count: int = 1, producer_id: int = 9) -> PendingAppend:
    values = [Record(None, b"%d" % (sequence + n), NOW_MS) for n in range(count)]
    return log.append(memoryview(build_batch(values, producer=(producer_id, 0, sequence))), acks=acks)


async def stored(log: PartitionLog) -> list[int]:
    return [int(value or b"") for value in (await read_all(log)).values()]


async def test_a_retry_gets_the_first_offset() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        for sequence in range(5):
            assert (await send(log, sequence).wait()).base_offset == sequence
        for sequence in range(5):
            assert (await send(log, sequence).wait()).base_offset == sequence
        assert await stored(log) == [0, 1, 2, 3, 4]


async def test_five_in_flight_and_their_retries_in_one_round() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        pending = [send(log, sequence) for sequence in (0, 1, 2, 1, 3, 0, 4)]
        assert [(await one.wait()).base_offset for one in pending] == [0, 1, 2, 1, 3, 0, 4]
        assert await stored(log) == [0, 1, 2, 3, 4]


async def test_a_sequence_gap_refuses_its_batch_and_all_later_batches() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        first, *others = [send(log, sequence) for sequence in (0, 2, 3)]
        assert (await first.wait()).base_offset == 0
        for one in others:
            with pytest.raises(OutOfOrderSequence):
                await one.wait()
        assert await stored(log) == [0]


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_duplicate_is_answered_when_its_original_is_durable(acks: int) -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        original, retry = send(log, 0), send(log, 0, acks=acks)
        await trio.testing.wait_all_tasks_blocked()
        late = send(log, 0, acks=acks)
        for one in (original, retry, late):
            with trio.move_on_after(5) as waited:
                await one.wait()
            assert waited.cancelled_caught, "answered before it was durable"
        pool.release.set()
        assert [(await one.wait()).base_offset for one in (original, retry, late)] == [0, 0, 0]


async def test_a_commit_batch_refused_by_a_full_disk_leaves_the_producer_state_unchanged() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await send(log, 0).wait()
        filesystem.faults.append(Fault("write", errno.ENOSPC, ".log"))
        for one in [send(log, 1), send(log, 2), send(log, 1)]:
            with pytest.raises(StorageError):
                await one.wait()
        with pytest.raises(OutOfOrderSequence):
            await send(log, 3).wait()
        assert [(await send(log, sequence).wait()).base_offset for sequence in (1, 2)] == [1, 2]
        assert await stored(log) == [0, 1, 2]


@pytest.mark.parametrize("slot_size_bytes", [NO_JOURNAL, 16 * 1024])
@pytest.mark.parametrize("how", ["clean stop", "kill", "power cut", "snapshots damaged", "snapshots lost"])
async def test_the_state_survives(how: str, slot_size_bytes: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    for life in range(3):
        async with running(filesystem, options(journal_slot_size_bytes=slot_size_bytes), problems=problems) as store:
            log = await open_orders(store, ROLLING, life)
            for retry in range(max(0, life * 10 - 5), life * 10):
                assert (await send(log, retry).wait()).base_offset == retry, "the last five are known"
            for sequence in range(life * 10, life * 10 + 10):
                assert (await send(log, sequence).wait()).base_offset == sequence
            await trio.sleep(5)
            if how in ("clean stop", "snapshots damaged"):
                await store.close()
        if how == "power cut":
            filesystem.crash(random.Random(life))
        for offset in snapshot_offsets(filesystem, "/data/orders-0"):
            path = f"/data/orders-0/{offset:020d}.snapshot"
            if how == "snapshots lost":
                filesystem.unlink(path)
            elif how == "snapshots damaged":
                filesystem.damage(path, 20, bytes([filesystem.content(path)[20] ^ 1]))
    async with running(filesystem, problems=problems) as store:
        assert await stored(await open_orders(store, ROLLING, 3)) == list(range(30))
    assert bool(problems) == (how == "snapshots damaged")


@pytest.mark.parametrize("seed", range(10))
async def test_a_power_cut_takes_the_same_batches_from_an_async_log_and_its_producer_state(seed: int) -> None:
    filesystem = SimulatedFileSystem()
    config = LogConfig(segment_size_bytes=400, flush_policy=FlushPolicy.ASYNC)
    sent = 0
    for life in range(6):
        async with running(filesystem) as store:
            log = await open_orders(store, config, life)
            kept = await stored(log)
            assert kept == list(range(len(kept)))
            for sequence in range(len(kept), len(kept) + 7):
                assert (await send(log, sequence).wait()).base_offset == sequence
            sent = max(sent, len(kept) + 7)
            await trio.sleep(seed)
        filesystem.crash(random.Random(seed * 100 + life))
    assert sent > 7


class CountingFileSystem(SimulatedFileSystem):
    """Counts the reads of segments."""

    reads = 0

    def trip(self, kind: str, path: str) -> None:
        self.reads += kind == "read" and path.endswith(".log")
        super().trip(kind, path)


async def test_after_a_kill_only_the_end_of_a_long_segment_is_read_for_producers() -> None:
    filesystem = CountingFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        for first in range(0, 60_000, 200):
            await send(log, first, count=200).wait()
        await trio.sleep(61)
        await send(log, 60_000).wait()
    opened = open_log(filesystem, "/data/orders-0", LastKnown(is_clean=True))
    whole = opened.producers
    known = read_checkpoint(filesystem, "/data").partitions[ORDERS.topic_id, ORDERS.partition]
    filesystem.reads = 0
    recover_producers(filesystem, opened, known.producers_from)
    assert list(opened.producers) == list(whole)
    assert filesystem.reads <= 12, "of some 150"


async def test_snapshots_are_few() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        for sequence in range(50):
            await send(log, sequence).wait()
        assert len(snapshot_offsets(filesystem, "/data/orders-0")) == 2
        await store.close()
    assert snapshot_offsets(filesystem, "/data/orders-0")[-1] == 50


async def test_a_batch_behind_a_first_batch_refused_by_a_full_disk_is_out_of_order() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault("write", errno.ENOSPC, ".log"))
        with pytest.raises(StorageError):
            await send(log, 0).wait()
        with pytest.raises(OutOfOrderSequence):
            await send(log, 1).wait()
        assert [(await send(log, sequence).wait()).base_offset for sequence in (0, 1)] == [0, 1]
        assert await stored(log) == [0, 1]


async def test_a_batch_behind_a_first_batch_refused_by_a_full_queue_is_out_of_order() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), options(queue_max_bytes=1000), pool=pool) as store:
        log = await open_orders(store)
        pool.is_holding = True
        large = send(log, 0, count=500, producer_id=8)
        with pytest.raises(Overloaded):
            send(log, 0)
        pool.release.set()
        await large.wait()
        with pytest.raises(OutOfOrderSequence):
            await send(log, 1).wait()
        assert [(await send(log, sequence).wait()).base_offset for sequence in (0, 1)] == [500, 501]


async def test_a_checkpoint_of_records_that_are_not_durable_loses_no_producer() -> None:
    filesystem = SimulatedFileSystem()
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_messages=7)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for sequence in range(13):
            await send(log, sequence).wait()
        await trio.sleep(61)
    filesystem.crash(random.Random(3))
    async with running(filesystem) as store:
        log = await open_orders(store, config, 1)
        kept = await stored(log)
        assert len(kept) == 9
        for sequence in kept[-5:]:
            assert (await send(log, sequence).wait()).base_offset == sequence


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_coordinator_batches_do_not_change_the_sequences_of_a_producer(is_compacted: bool) -> None:
    """Markers, and batches that a coordinator writes for a producer, also after another config or a restart."""
    filesystem = SimulatedFileSystem()
    config = LogConfig(requires_keys=is_compacted, compression_type=CompressionType.GZIP)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        assert isinstance(log, Partition)
        record = Record(b"key", b"0", NOW_MS)
        await log.append(memoryview(build_batch([record], producer=(9, 0, 0))), acks=-1).wait()
        again = build_batch([record], producer=(9, 0, 0))
        assert (await log.append(memoryview(again), acks=-1).wait()).base_offset == 0
        for _ in range(2):
            pending = build_batch([record], attributes=TRANSACTIONAL_BIT, producer=(9, 0, 0))
            written = await log.append(memoryview(pending), acks=-1, origin=Origin.COORDINATOR).wait()
            assert written.base_offset == log.log_end_offset - 1, "no duplicate"
        marker = Marker(9, 0, 3, Outcome.COMMIT)
        with pytest.raises(InvalidRecord):
            log.append(memoryview(build_marker(marker, NOW_MS)), acks=-1)
        assert (await log.end_transaction(marker).wait()).base_offset == 3
        known = dict(log.log.producers)
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, config, leader_epoch=1)
        assert isinstance(log, Partition)
        assert log.log_end_offset == 4
        assert dict(log.log.producers) == known
