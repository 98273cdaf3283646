"""Opening after crashes and damage: acknowledged records are there, wrong bytes are never served (RULES L5)."""

import errno
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio

from engine.errors import CorruptMessage, EngineError, StorageError
from engine.files.filesystem import FileSystem
from engine.log_config import LogConfig
from engine.logs.recovery.checkpoints import PartitionCheckpoint
from engine.logs.recovery.recovery import LastKnown, open_log
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import append, batch, open_orders, read, read_all, running

LOG_FILE = "/data/orders-0/00000000000000000000.log"
ROLLING = LogConfig(segment_size_bytes=400)


async def reopened(filesystem: FileSystem) -> dict[int, bytes | None]:
    async with running(filesystem) as store:
        return await read_all(await open_orders(store, ROLLING, leader_epoch=9))


async def filled(filesystem: FileSystem, count: int, config: LogConfig | None = None, *, clean: bool) -> None:
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for number in range(count):
            await append(log, b"value %d" % number)
        if clean:
            await store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [LogConfig(), ROLLING])
async def test_records_offsets_and_appends_survive_a_restart(config: LogConfig, clean: bool) -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 20, config, clean=clean)
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, config, leader_epoch=1)
        assert log.high_watermark == 20
        assert (await append(log, b"next")).base_offset == 20
        assert await read_all(log) == {n: b"value %d" % n for n in range(20)} | {20: b"next"}


async def test_every_crash_image_keeps_all_acknowledged_records() -> None:
    """Reopen after every prefix of the recorded operations, without unsynced writes, and with some of them."""
    filesystem = SimulatedFileSystem()
    acknowledged: list[tuple[int, int, bytes]] = []  # operations until the ack, offset, value
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)

        async def produce(value: bytes) -> None:
            result = await append(log, value)
            acknowledged.append((len(filesystem.operations), result.base_offset, value))

        for step in range(6):
            async with trio.open_nursery() as nursery:
                for number in range(3):
                    nursery.start_soon(produce, b"value %d.%d" % (step, number))
        await store.close()
    operations = list(filesystem.operations)
    for count in range(len(operations) + 1):
        for seed in (None, count):
            image = SimulatedFileSystem.replayed(operations[:count])
            image.crash(None if seed is None else random.Random(seed))
            values = await reopened(image)
            assert list(values) == list(range(len(values)))
            for done_at, offset, value in acknowledged:
                if done_at <= count:
                    assert values.get(offset) == value, f"lost after operation {count} of {len(operations)}"
                else:
                    assert values.get(offset, value) == value


def torn_tails() -> Iterator[bytes]:
    whole = bytes(batch(b"torn"))
    yield from (whole[:1], whole[:60], whole[:61], whole[:-1], bytes(100), b"\xff" * 300)
    flipped = bytearray(whole)
    flipped[7] = 1  # the right base offset, a wrong record byte
    flipped[-1] ^= 1
    yield bytes(flipped)


@pytest.mark.parametrize("tail", list(torn_tails()))
async def test_l5_a_torn_tail_is_truncated_after_an_unclean_stop(tail: bytes) -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 1, clean=False)
    size_bytes = len(filesystem.content(LOG_FILE))
    filesystem.crash()
    filesystem.damage(LOG_FILE, size_bytes, tail)
    problems = list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, leader_epoch=1)
        assert await read_all(log) == {0: b"value 0"}
        assert len(filesystem.content(LOG_FILE)) == size_bytes
        assert (await append(log, b"after")).base_offset == 1
        await store.close()
    [problem] = problems
    assert problem.startswith(f"{LOG_FILE}: {len(tail)} bytes behind offset 1 are no whole batch")
    async with running(filesystem, problems=problems) as store:
        assert await read_all(await open_orders(store, leader_epoch=2)) == {0: b"value 0", 1: b"after"}
    assert problems == [problem]


async def damaged(filesystem: SimulatedFileSystem, readable: int, *, is_found_at_open: bool = True) -> None:
    """Assert that records before the damage are served, and the rest is CORRUPT_MESSAGE.

    A log that is known to be damaged refuses appends.
    """
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=5)
        values: dict[int, bytes | None] = {}
        with pytest.raises(CorruptMessage):
            await read_all(log, values)
        assert values == {n: b"value %d" % n for n in range(readable)}
        with pytest.raises(CorruptMessage):
            await read(log, readable)
        if is_found_at_open:
            assert log.high_watermark == readable
            with pytest.raises(StorageError):
                log.append(memoryview(batch(b"more")), acks=-1)
        await store.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_l5_rot_below_the_recovery_point_is_not_cut(clean: bool) -> None:
    """The damage is a flipped length byte. After a clean stop nothing is scanned: the first read there finds it."""
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 10, clean=True)
    if not clean:
        filesystem.unlink("/data/clean-shutdown")
        filesystem.sync_dir("/data")
    size_bytes = len(filesystem.content(LOG_FILE))
    filesystem.damage(LOG_FILE, 4 * size_bytes // 10 + 10, b"\x77")
    before = filesystem.content(LOG_FILE)
    for _ in range(2):  # the second time on the result of the first start
        await damaged(filesystem, 4, is_found_at_open=not clean)
    assert filesystem.content(LOG_FILE) == before, "rot was touched"


async def test_l5_flipped_record_byte_below_the_recovery_point_is_found_by_the_scan() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 10, clean=True)
    filesystem.unlink("/data/clean-shutdown")
    filesystem.sync_dir("/data")
    size_bytes = len(filesystem.content(LOG_FILE)) // 10
    filesystem.damage(LOG_FILE, 4 * size_bytes + size_bytes - 2, b"\x77")
    await damaged(filesystem, 4)


@pytest.mark.parametrize("victim", [1, 2])
async def test_missing_or_short_segment_in_the_middle_is_never_skipped(victim: int) -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 20, ROLLING, clean=False)
    names = [name for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log")]
    path = f"/data/orders-0/{names[victim]}"
    if victim == 1:
        filesystem.unlink(path)
        readable = int(names[1].removesuffix(".log"))
    else:
        file = filesystem.open(path)
        file.truncate(file.size() - 1)
        for name in filesystem.list_dir("/data/journal"):  # which would make the segment whole again
            filesystem.unlink(f"/data/journal/{name}")
        readable = int(names[3].removesuffix(".log")) - 1
    await damaged(filesystem, readable)


@pytest.mark.parametrize("reason", ["time passed", "a segment was finished"])
async def test_l5_recovery_points_follow_the_durable_end_while_running(reason: str) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING if reason == "a segment was finished" else None)
        for number in range(10):
            await append(log, b"value %d" % number)
        await trio.sleep(61 if reason == "time passed" else 3)
    name = filesystem.list_dir("/data/orders-0")[-2]
    filesystem.damage(f"/data/orders-0/{name}", 70, b"\xff")
    await damaged(filesystem, int(name.removesuffix(".log")))


async def test_l5_bytes_that_appeared_after_a_clean_stop_are_not_a_torn_tail() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 3, clean=True)
    filesystem.damage(LOG_FILE, len(filesystem.content(LOG_FILE)), b"garbage")
    await damaged(filesystem, 3)


async def test_file_shorter_than_its_recovery_point_is_damage() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 10, clean=True)
    file = filesystem.open(LOG_FILE)
    file.truncate(file.size() // 2)
    await damaged(filesystem, 5)


async def test_recovered_tail_is_synced_before_it_is_served() -> None:
    """The page cache may hold more than the disk after `kill -9`: a served record must survive a power cut."""
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 3, clean=False)
    extra = batch(b"value 3")
    extra[7] = 3
    extra[15] = 0
    extra[12:16] = bytes(4)
    file = filesystem.open(LOG_FILE)
    file.write_at([extra], file.size())
    assert len(await reopened(filesystem)) == 4
    filesystem.crash()
    assert len(await reopened(filesystem)) == 4


async def test_l5_unknown_magic_is_not_served_after_a_clean_stop() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 2, clean=True)
    filesystem.damage(LOG_FILE, len(filesystem.content(LOG_FILE)) // 2 + 16, b"\x03")
    await damaged(filesystem, 1, is_found_at_open=False)


async def test_metadata_of_another_version_is_refused() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 1, clean=True)
    filesystem.damage("/data/orders-0/partition.metadata", 0, b"version: 9")
    async with running(filesystem) as store:
        with pytest.raises(EngineError, match="another version"):
            await open_orders(store, leader_epoch=1)


async def test_l4_full_disk_at_a_roll_leaves_no_segment_behind() -> None:
    """The next start would take an empty segment before later offsets for damage."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await append(log, b"a")
        filesystem.faults.append(Fault("write", errno.ENOSPC, "1.log"))
        with pytest.raises(StorageError, match="no space"):
            await append(log, bytes(300))
        assert filesystem.list_dir("/data/orders-0") == [LOG_FILE.rpartition("/")[2], "partition.metadata"]
        await append(log, b"b")
        await append(log, bytes(300))
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, leader_epoch=1)
        assert await read_all(log) == {0: b"a", 1: b"b", 2: bytes(300)}
        assert (await append(log, b"c")).base_offset == 3


async def test_l5_damage_found_by_a_scan_is_not_forgotten_at_a_clean_stop() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 10, clean=True)
    filesystem.unlink("/data/clean-shutdown")
    batch_size_bytes = len(batch(b"value 0"))
    filesystem.damage(LOG_FILE, 5 * batch_size_bytes - 2, b"\x00")
    for _ in range(3):
        await damaged(filesystem, readable=4)


async def test_l7_names_left_by_a_killed_process_are_synced_before_they_are_used() -> None:
    first = SimulatedFileSystem()
    async with running(first) as store:
        log = await open_orders(store, ROLLING)
        for number in range(8):
            await append(log, b"%d" % number)
    for count in range(2, len(first.operations) + 1):  # the log dir itself is there
        filesystem = SimulatedFileSystem.replayed(first.operations[:count])
        async with running(filesystem) as store:
            log = await open_orders(store, ROLLING, leader_epoch=1)
            offset = (await append(log, b"acknowledged")).base_offset
        filesystem.crash()
        async with running(filesystem) as store:
            log = await open_orders(store, ROLLING, leader_epoch=2)
            assert (await read_all(log)).get(offset) == b"acknowledged", f"lost after operation {count}"


async def test_l7_clean_marker_that_comes_back_after_a_kill_and_a_power_cut_is_not_believed() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem, 1, clean=True)
    filesystem.unlink("/data/clean-shutdown")  # killed before the directory was synced
    async with running(filesystem) as store:
        await append(await open_orders(store, leader_epoch=1), b"more")
    filesystem.crash()
    assert not filesystem.exists("/data/clean-shutdown")


async def test_records_served_after_a_failed_sync_and_a_restart_survive_a_power_cut() -> None:
    """The next power cut would take such records, and a record that was read once must stay."""
    filesystem = SimulatedFileSystem()
    filesystem.faults.append(Fault("fdatasync", errno.EIO, ".log"))
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        with suppress(StorageError):
            for number in range(20):
                await append(log, b"value %d" % number)
    assert not filesystem.faults
    served = await reopened(filesystem)
    filesystem.crash()
    assert await reopened(filesystem) == served


@pytest.mark.parametrize(
    ("start", "high_watermark", "ends"),
    [(0, 0, [0, 3, 5]), (0, 3, [3, 5]), (0, 4, [3, 5]), (1, 1, [1, 3, 5]), (4, 4, [4, 5]), (5, 5, [5])],
)
async def test_a_start_with_other_replicas_begins_from_the_high_watermark(
    start: int, high_watermark: int, ends: list[int]
) -> None:
    """The high watermark may lie within a batch, as a log start may; records below it were confirmed."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"0", b"1", b"2")
        await append(log, b"3", b"4")
        await store.close()
    checkpoint = PartitionCheckpoint(5, start, high_watermark=high_watermark)
    opened = open_log(filesystem, "/data/orders-0", LastKnown(True, checkpoint, has_others=True))
    assert [one.offset for one in opened.unconfirmed] == ends
