"""Appends acknowledged from the journal survive; changes with barriers stay done (RULES J1-J4)."""

import errno
import random

import pytest
import trio
from crc32c import crc32c

from engine.api import Isolation, PartitionLog, TopicIdPartition
from engine.commit.journal_format import (
    PAGE_SIZE_BYTES,
    SLOT_HEADER_SIZE_BYTES,
    Barrier,
    BarrierKind,
    frames,
    parse_slot_header,
    slot_header,
)
from engine.errors import CorruptMessage, StorageError, StoreRefused
from engine.log_config import FlushPolicy, LogConfig
from engine.log_dirs.layout import Identity, prepare
from engine.logs.recovery.checkpoints import read_checkpoint
from engine.logs.segments.segment import segment_name
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.testing.simulated_loss import Operation
from testkit.logs import ORDERS, append, batch, open_orders, options, read_all, running

SLOT = "/data/journal/0.journal"
BIG = TopicIdPartition(bytes(16), "big", 0)


async def with_a_slot(store: SegmentStore) -> PartitionLog:
    """Open the orders log, and append until the log dir has a slot in use and another one ready."""
    log = await open_orders(store)
    for value in (b"first", b"second"):
        await append(log, value)
        await trio.sleep(5)
    return log


def damage_frame(filesystem: SimulatedFileSystem, from_end: int, where: int) -> None:
    """Flip a bit `where` bytes into one of the last frames of the slot."""
    content = filesystem.content(SLOT)
    slot = parse_slot_header(content)
    assert slot is not None
    ends = [PAGE_SIZE_BYTES, *(frame.end for frame in frames(content, slot[0]))]
    position = ends[-1 - from_end] + where
    filesystem.damage(SLOT, position, bytes([content[position] ^ 1]))


async def partitions(store: SegmentStore, count: int, leader_epoch: int = 0) -> list[PartitionLog]:
    names = [TopicIdPartition(bytes(range(1, 17)), "many", number) for number in range(count)]
    return [await store.open_partition(name, LogConfig(), leader_epoch) for name in names]


async def test_j1_a_round_over_many_files_is_one_write_and_one_sync() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        logs = await partitions(store, 20)
        filesystem.operations.clear()
        pending = [log.append(memoryview(batch(b"x")), acks=-1) for log in logs]
        for one in pending:
            await one.wait()
        durable = [one for one in filesystem.operations if one.path == SLOT or one.path.endswith(".log")]
        durable = [one for one in durable if one.path == SLOT or one.kind == "fdatasync"]
        assert [(one.kind, one.path) for one in durable] == [("write", SLOT), ("fdatasync", SLOT)]


@pytest.mark.parametrize("seed", range(20))
async def test_j3_records_durable_only_in_the_journal_survive_a_power_cut(seed: int) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        logs = await partitions(store, 5)
        for number in range(10):
            pending = [log.append(memoryview(batch(b"%d" % number)), acks=-1) for log in logs]
            for one in pending:
                await one.wait()
        unfinished = logs[0].append(memoryview(batch(b"not acknowledged")), acks=-1)
        assert unfinished is not None
    filesystem.crash(random.Random(seed))
    problems = list[str]()
    async with running(filesystem, problems=problems) as store:
        for log in await partitions(store, 5, 1):
            assert list((await read_all(log)).values())[:10] == [b"%d" % number for number in range(10)]
        assert problems == []


async def test_j4_a_slot_is_used_again_only_behind_a_checkpoint_of_synced_segments() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options(journal_slot_size_bytes=20_000)) as store:
        log = await with_a_slot(store)
        for number in range(200):
            await append(log, b"value %d" % number)
            await trio.sleep(0.1)
        slots = [name for name in filesystem.list_dir("/data/journal") if name.endswith(".journal")]
        assert len(slots) <= 4
        assert read_checkpoint(filesystem, "/data").journal_sequence > 100
    filesystem.crash()
    async with running(filesystem) as store:
        assert len(await read_all(await open_orders(store, leader_epoch=1))) == 202


async def test_j2_a_deleted_partition_does_not_come_back() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        await append(log, b"doomed")
        await store.delete_partition(log.partition)
    filesystem.crash()
    async with running(filesystem) as store:
        again = await open_orders(store, leader_epoch=1)
        assert await read_all(again) == {}
        assert (await append(again, b"new")).base_offset == 0


async def test_rot_in_the_middle_of_the_journal_is_reported_and_never_hides_a_lost_append() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        for number in range(3):
            await append(log, b"value %d" % number)
    filesystem.crash()
    damage_frame(filesystem, 2, where=20)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        values: dict[int, bytes | None] = {}
        with pytest.raises(CorruptMessage, match="damaged from offset 3"):
            await read_all(log, values)
        assert list(values.values()) == [b"first", b"second", b"value 0"]
        assert "appends may be missing" in problems[0]
        assert problems[1:] == ["/data/orders-0 is damaged from offset 3 on: it takes no appends"]


@pytest.mark.parametrize("where", [20, 130])
async def test_rot_after_a_kill_costs_nothing_because_the_segments_have_the_bytes(where: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        for value in (b"a", b"b", b"c"):
            await append(log, value)
    damage_frame(filesystem, 2, where)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        assert list((await read_all(log)).values()) == [b"first", b"second", b"a", b"b", b"c"]
        assert len(problems) == 1


async def test_a_damaged_slot_header_is_reported_and_repaired() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        await append(log, b"third")
    filesystem.crash()
    before = filesystem.content(SLOT)
    filesystem.damage(SLOT, 3, b"?")
    async with running(filesystem, problems=problems) as store:
        assert problems == [f"{SLOT} had a damaged header: repaired from its first frame"]
        assert list((await read_all(await open_orders(store, leader_epoch=1))).values()) == [
            b"first",
            b"second",
            b"third",
        ]
    assert filesystem.content(SLOT)[:SLOT_HEADER_SIZE_BYTES] == before[:SLOT_HEADER_SIZE_BYTES]


@pytest.mark.parametrize("restarts_unopened", [0, 2])
async def test_a_lost_slot_is_reported_and_no_tail_is_cut_until_every_log_was_opened(restarts_unopened: int) -> None:
    """A torn tail may be all that is left of an acknowledged append, however often the broker starts first."""
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        await append(log, b"third")
    filesystem.crash()
    filesystem.damage(SLOT, 3, b"?")
    filesystem.damage(SLOT, PAGE_SIZE_BYTES + 20, b"?")
    path = f"/data/orders-0/{segment_name(0)}"
    filesystem.damage(path, len(filesystem.content(path)), b"torn")
    for _ in range(restarts_unopened):
        async with running(filesystem, problems=problems):
            await trio.sleep(5)
        filesystem.crash()
    for epoch in (1, 2):  # the second time by the recovery point
        async with running(filesystem, problems=problems) as store:
            log = await open_orders(store, leader_epoch=epoch)
            with pytest.raises(StorageError, match="damaged from offset 2"):
                log.append(memoryview(batch(b"x")), acks=-1)
            await trio.sleep(5)
            assert read_checkpoint(filesystem, "/data").has_lost is False
        filesystem.crash()
    assert "is lost" in problems[0]
    assert problems[1:] == ["/data/orders-0 is damaged from offset 2 on: it takes no appends"] * 2


async def test_slots_of_another_size_are_read_and_replaced() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        await append(log, b"third")
    filesystem.crash()
    filesystem.open("/data/journal/notes.txt", create=True)
    async with running(filesystem, options(journal_slot_size_bytes=8192)) as store:
        log = await open_orders(store, leader_epoch=1)
        assert len(await read_all(log)) == 3
        await append(log, b"fourth")
        await trio.sleep(5)
        sizes = {
            len(filesystem.content(f"/data/journal/{name}"))
            for name in filesystem.list_dir("/data/journal")
            if name.endswith(".journal")
        }
        assert sizes == {8192}
        assert filesystem.exists("/data/journal/notes.txt")


@pytest.mark.parametrize("where", [20, 130])
async def test_an_incomplete_last_frame_is_dropped_and_reported(where: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        await append(log, b"third")
        await append(log, b"fourth")
    filesystem.crash()
    damage_frame(filesystem, 1, where)
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        assert list((await read_all(log)).values()) == [b"first", b"second", b"third"]
        assert (await append(log, b"again")).base_offset == 3
    assert len(problems) == 1
    assert "incomplete" in problems[0]


async def test_l5_a_lost_directory_is_damage() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await store.close()
    filesystem.rename("/data/orders-0", "/orders-0")
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        with pytest.raises(CorruptMessage):
            log.read(0, 100, Isolation.READ_UNCOMMITTED, at_least_one=True)


async def test_a_slot_of_another_version_refuses_to_start() -> None:
    from crc32c import crc32c

    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        await store.close()
    header = bytearray(slot_header(b"12345678", 16 * 1024))
    header[11] = 9
    header[4:8] = crc32c(bytes(header[8:])).to_bytes(4, "big")
    filesystem.damage(SLOT, 0, bytes(header))
    with pytest.RaisesGroup(pytest.RaisesExc(StoreRefused, match="format version 9")):
        async with running(filesystem):
            pass


async def test_j1_a_durable_append_behind_unsynced_async_records_leaves_no_gap_after_a_crash() -> None:
    """Otherwise a replay would find a gap: the journal has the end of the log, and no file the records before it."""
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_messages=3)
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        log = await store.open_partition(BIG, config, 0)
        for value in (b"a", b"b", b"c"):  # the third makes all three durable
            await append(log, value)
    filesystem.crash()
    async with running(filesystem) as store:
        log = await store.open_partition(BIG, config, 1)
        assert list((await read_all(log)).values()) == [b"a", b"b", b"c"]
        await append(log, b"d")


@pytest.mark.parametrize("kind", ["write", "fdatasync"])
async def test_l4_a_disk_too_full_for_a_slot_is_no_failure(kind: str) -> None:
    filesystem = SimulatedFileSystem()
    filesystem.faults.append(Fault(kind, errno.ENOSPC, ".journal.tmp", skip=kind == "write", written_bytes=100))
    async with running(filesystem) as store:
        log = await with_a_slot(store)
        assert not filesystem.exists(SLOT + ".tmp")
        await append(log, b"third")
        await trio.sleep(5)
        assert filesystem.exists(SLOT)


async def test_a_slot_is_not_made_from_the_last_space() -> None:
    """An append could run out of space halfway while the slot is written, which would take the log dir offline."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        filesystem.capacity_bytes = 100_000
        await with_a_slot(store)
        assert not filesystem.exists(SLOT)
        filesystem.capacity_bytes = 1 << 60
        await trio.sleep(60)
        assert filesystem.exists(SLOT)


async def test_a_log_that_is_deleted_needs_no_flush_any_more() -> None:
    async with running(SimulatedFileSystem()) as store:
        config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_interval_ms=1000)
        log = await store.open_partition(BIG, config, 0)
        await append(log, b"a")
        await store.delete_partition(BIG)
        await trio.sleep(2)
        await append(await open_orders(store), b"still served")


@pytest.mark.parametrize("slots", [1, 0])
@pytest.mark.parametrize("checkpoint", [True, False])
async def test_j2_a_barrier_survives_a_crash_with_or_without_a_checkpoint(slots: int, checkpoint: bool) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await with_a_slot(store) if slots else await open_orders(store)
        await append(log, b"a")
        assert isinstance(log, Partition)
        log_dir = log.log_dir
        async with trio.open_nursery() as nursery, log_dir.commit_log.alone():
            if checkpoint:
                nursery.start_soon(log_dir.commit_log.checkpoint)
            await log_dir.commit_log.announce([Barrier(*ORDERS[::2], BarrierKind.LOG_START, 1)])
            await trio.sleep(1)
            log.log.start_offset = 1
    filesystem.crash()
    prepared = prepare(filesystem, "/data", Identity("cluster", 1))
    assert prepared.checkpoint.partitions[ORDERS[::2]].log_start_offset == 1


@pytest.mark.parametrize("seed", [None, *range(5)])
async def test_j3_a_power_cut_at_any_moment_of_a_replay_loses_nothing(seed: int | None) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        logs = await partitions(store, 3)
        for number in range(3):
            for log in logs:
                await append(log, b"%d" % number)
    filesystem.crash()
    operations_before = list(filesystem.operations)
    filesystem = after_a_power_cut(operations_before)
    async with running(filesystem) as store:
        await partitions(store, 3, 1)
        await trio.sleep(5)
    for count in range(len(filesystem.operations) - len(operations_before) + 1):
        image = after_a_power_cut(operations_before)
        for operation in filesystem.operations[len(operations_before) :][:count]:
            image.do(operation)
        image.crash(None if seed is None else random.Random(seed * 1000 + count))
        async with running(image) as store:
            for log in await partitions(store, 3, 2):
                assert list((await read_all(log)).values()) == [b"0", b"1", b"2"]


async def test_j2_a_barrier_left_unsynced_by_a_killed_process_is_synced_before_it_is_applied() -> None:
    filesystem = SimulatedFileSystem()
    small = LogConfig(segment_size_bytes=400)
    async with running(filesystem) as store:
        log = await open_orders(store, small)
        for number in range(8):
            await append(log, b"%d" % number)
            await trio.sleep(5 if number == 0 else 0)
        whole = list((await read_all(log)).values())
        before = len(filesystem.operations)
        await store.truncate_partition(ORDERS, 1, below_sealed=True)
    written = next(
        number
        for number, one in enumerate(filesystem.operations)
        if number >= before and (one.kind, one.path) == ("write", SLOT)
    )
    killed = filesystem.operations[: written + 1]
    opened = SimulatedFileSystem.replayed(killed)
    async with running(opened) as store:
        await open_orders(store, small, 1)
    for count in range(len(opened.operations) - len(killed) + 1):
        image = SimulatedFileSystem.replayed(opened.operations[: len(killed) + count])
        image.crash()
        async with running(image) as store:
            found = list((await read_all(await open_orders(store, small, 2))).values())
            assert found in (whole, whole[:1])


def after_a_power_cut(operations: list[Operation]) -> SimulatedFileSystem:
    image = SimulatedFileSystem.replayed(operations)
    image.crash()
    return image


async def test_records_durable_in_the_journal_do_not_count_for_flush_messages() -> None:
    config = LogConfig(flush_policy=FlushPolicy.ASYNC, flush_messages=3)
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await with_a_slot(store)
        log = await store.open_partition(BIG, config, 0)
        await append(log, b"a", b"b", b"c")
        synced = [one.path for one in filesystem.operations if one.kind == "fdatasync"]
        assert synced[-1] == SLOT
        await append(log, b"d")
        assert [one.path for one in filesystem.operations if one.kind == "fdatasync"] == synced


async def test_appends_that_need_a_file_sync_leave_the_rest_of_their_commit_batch_in_the_journal() -> None:
    """A log with a large append, a log with unsynced records, and a log that begins a segment sync their files."""
    filesystem = SimulatedFileSystem()
    small_segments = LogConfig(segment_size_bytes=len(batch(b"x")))
    async with running(filesystem) as store:
        await with_a_slot(store)
        logs = await partitions(store, 10)
        large, behind, rolling = await partitions_of(store, "large", "behind", "rolling")
        assert isinstance(behind, Partition)
        behind.lead(LogConfig(flush_policy=FlushPolicy.ASYNC), 0)
        await append(behind, b"not durable")
        behind.lead(LogConfig(), 0)
        assert isinstance(rolling, Partition)
        rolling.lead(small_segments, 0)
        await append(rolling, b"x")
        filesystem.operations.clear()
        pending = [log.append(memoryview(batch(b"x")), acks=-1) for log in (*logs, behind, rolling)]
        pending.append(large.append(memoryview(batch(b"x" * 1_000_000)), acks=-1))
        for one in pending:
            await one.wait()
        synced = [one.path for one in filesystem.operations if one.kind == "fdatasync"]
        expected = [f"/data/{name}-0/{segment_name(0)}" for name in ("large", "behind")]
        expected += [f"/data/rolling-0/{segment_name(base)}" for base in (0, 1)]
        assert sorted(synced) == sorted([SLOT, *expected])
    filesystem.crash()
    async with running(filesystem) as store:
        for log in await partitions(store, 10, 1):
            assert len(await read_all(log)) == 1
        found = [len(await read_all(log)) for log in await partitions_of(store, "large", "behind", "rolling", epoch=1)]
        assert found == [1, 2, 2]


async def partitions_of(store: SegmentStore, *topics: str, epoch: int = 0) -> list[PartitionLog]:
    return [
        await store.open_partition(TopicIdPartition(number.to_bytes(16, "big"), topic, 0), LogConfig(), epoch)
        for number, topic in enumerate(topics, 100)
    ]


async def test_a_slot_of_an_older_version_is_read_and_written_to_no_more() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"0")
        await trio.sleep(5)
        await append(log, b"1")
    header = bytearray(filesystem.content(SLOT)[:SLOT_HEADER_SIZE_BYTES])
    header[8:12] = (1).to_bytes(4, "big")
    header[4:8] = crc32c(bytes(header[8:])).to_bytes(4, "big")
    filesystem.open(SLOT).write_at([header], 0)
    filesystem.open(SLOT).fdatasync()
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        assert list((await read_all(log)).values()) == [b"0", b"1"]
        await append(log, b"2")
        await trio.sleep(5)
        await append(log, b"3")
        assert SLOT not in filesystem.files()
