"""Logs that the metadata does not name: set aside, put back with all they had, and deleted in the end (RULES D3)."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import trio
import trio.testing

from engine.api import TopicIdPartition
from engine.commit.journal import Found
from engine.errors import StorageError, StoreRefused
from engine.log_config import FlushPolicy, LogConfig
from engine.log_dirs.layout import Prepared, directory_name
from engine.log_dirs.stray_files import (
    UNKNOWN,
    Stray,
    StrayMetadata,
    decode_metadata,
    encode_metadata,
    find_strays,
    read_running_times,
    resume,
    stray_name,
)
from engine.log_dirs.strays import BACK, CHECK_INTERVAL_S, STUCK, Fate
from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, key_of, read_checkpoint
from engine.logs.recovery.epochs import EpochStart
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.testing.simulated_loss import Operation
from testkit.logs import NOW_MS, ORDERS, append, fates, open_orders, options, read_all, running

KEY = key_of(ORDERS)
OTHER = TopicIdPartition(bytes([7] * 16), "other", 0)
NAME = stray_name(KEY, NOW_MS)
NAMED = fates(lambda *_: True)
UNNAMED = fates(lambda *_: False, Fate.UNNAMED)
DELETED = fates(lambda *_: False, Fate.DELETED)
SMALL = LogConfig(segment_size_bytes=300)
POINT = PartitionCheckpoint(7, 2, 1, (EpochStart(3, 4),), epochs_to=7, high_watermark=5, tombstones_to=1)


async def filled(filesystem: SimulatedFileSystem, *, is_clean: bool = True) -> dict[int, bytes | None]:
    """Make a log of several segments; returns the acknowledged records."""
    async with running(filesystem) as store:
        log = await open_orders(store, SMALL)
        for number in range(8):
            await append(log, b"record %d" % number)
        await log.delete_records(2)
        await append(log, b"last")
        found = await read_all(log)
        if is_clean:
            await store.close()
    return found


def resident(store: SegmentStore) -> Partition:
    found = store.replica(ORDERS)
    assert isinstance(found, Partition)
    return found


async def check_served(store: SegmentStore, expected: dict[int, bytes | None], leader_epoch: int = 1) -> None:
    log = await open_orders(store, SMALL, leader_epoch=leader_epoch)
    assert await read_all(log) == expected
    assert log.log_start_offset == min(expected)
    opening = resident(store).opening
    assert opening is not None
    assert not opening.is_short
    assert not opening.is_damaged
    await append(log, b"on it goes")


@pytest.mark.parametrize("is_clean", [True, False])
async def test_d3_a_log_that_is_not_named_is_kept_and_comes_back_with_all_records(*, is_clean: bool) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    expected = await filled(filesystem, is_clean=is_clean)
    async with running(filesystem, problems=problems) as store:
        await store.strays.apply_fates(UNNAMED)
        assert not filesystem.exists("/data/orders-0")
        [statistics] = store.statistics()
        assert (statistics.stray_count, statistics.names) == (1, set())
        assert statistics.stray_size_bytes > sum(len(value or b"") for value in expected.values())
        await store.close()
    assert f"/data/{NAME} is a stray: topic orders is not in the metadata" in problems
    assert read_checkpoint(filesystem, "/data").partitions == {}
    [stray] = find_strays(filesystem, "/data")
    assert (stray.topic, stray.key, stray.at_ms) == ("orders", KEY, NOW_MS)
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        assert store.had(ORDERS)
        [statistics] = store.statistics()
        assert (statistics.stray_count, statistics.stray_size_bytes) == (0, 0)
        assert not filesystem.exists("/data/orders-0/stray.metadata")
        await check_served(store, expected)
        await store.close()
    assert filesystem.exists("/data/clean-shutdown")


async def test_d3_a_stray_that_lost_its_last_records_is_opened_as_short_and_damaged() -> None:
    """RULES K8: the checkpoint entry shows the loss."""
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await store.close()
    newest = max(name for name in filesystem.list_dir(f"/data/{NAME}") if name.endswith(".log"))
    filesystem.open(f"/data/{NAME}/{newest}").truncate(0)
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        await open_orders(store, SMALL, leader_epoch=1)
        opening = resident(store).opening
        assert opening is not None
        assert opening.is_short
        assert opening.is_damaged


async def test_a_clean_stop_in_between_takes_no_scan_from_a_stray_that_needs_one() -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem, is_clean=False)
    for fate_of in (UNNAMED, NAMED):
        async with running(filesystem) as store:
            await store.strays.apply_fates(fate_of)
            await store.close()
    assert not filesystem.exists("/data/clean-shutdown"), "nobody has opened it yet"
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        await check_served(store, expected)


async def test_d3_a_log_of_a_deleted_or_moved_partition_is_deleted_at_once() -> None:
    for fate in (Fate.DELETED, Fate.MOVED):
        filesystem = SimulatedFileSystem()
        await filled(filesystem)
        async with running(filesystem) as store:
            await store.strays.apply_fates(fates(lambda *_: False, fate))
        assert [name for name in filesystem.list_dir("/data") if "-" in name] == []


async def test_a_stray_is_deleted_when_its_topic_is_deleted_and_not_when_its_partition_moved() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    for fate, is_there in ((Fate.UNNAMED, True), (Fate.MOVED, True), (Fate.DELETED, False)):
        async with running(filesystem) as store:
            await store.strays.apply_fates(fates(lambda *_: False, fate))
            assert filesystem.exists(f"/data/{NAME}") == is_there
            await store.close()


async def test_d3_a_log_that_vanishes_from_the_metadata_of_a_running_broker_is_kept() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, SMALL)
        for number in range(8):
            await append(log, b"record %d" % number)
        expected = await read_all(log)
        await store.strays.set_aside([ORDERS])
        assert not filesystem.exists("/data/orders-0")
        assert [*store.partition_statistics()] == []
        assert store.had(ORDERS)
        assert await store.strays.put_back([TopicIdPartition(bytes(16), "orders", 0)]) == {}
        assert await store.strays.put_back([ORDERS]) == {ORDERS: BACK}
        assert await store.strays.put_back([ORDERS]) == {}
        await check_served(store, expected)
    assert problems == [f"/data/{NAME} is a stray: topic orders is not in the metadata"]


async def test_j2_frames_of_a_stray_are_not_replayed_to_another_log() -> None:
    """No entry of the stray stays in the checkpoint either."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await store.strays.set_aside([ORDERS])
    async with running(filesystem):
        pass
    assert read_checkpoint(filesystem, "/data").partitions == {}


def images(operations: Sequence[Operation], start: int) -> list[SimulatedFileSystem]:
    """The disk after a crash at each operation: of the process alone, and of the power, with unsynced writes lost."""
    found = []
    for count in range(start, len(operations) + 1):
        for rng in ((), (None,), (Random(count),), (Random(-count),)):
            image = SimulatedFileSystem.replayed(operations[:count])
            for one in rng:
                image.crash(one)
            found.append(image)
    return found


async def check_images(filesystem: SimulatedFileSystem, start: int, expected: dict[int, bytes | None]) -> None:
    """Assert that no record is lost, whatever the next starts find in the metadata, and the log is opened with its
    entry."""
    found = images(filesystem.operations, start)
    assert len(found) > 20
    for number, image in enumerate(found):
        epoch = 2
        for fate_of in ((NAMED,), (UNNAMED, NAMED))[number // 4 % 2]:
            problems: list[str] = []
            async with running(image, problems=problems) as store:
                await store.strays.apply_fates(fate_of)
                if fate_of is NAMED:
                    assert find_strays(image, "/data") == []
                    await check_served(store, expected, epoch)
            assert not [one for one in problems if "damaged" in one], problems


@pytest.mark.parametrize("is_clean", [True, False])
async def test_d3_a_crash_while_a_start_sets_a_log_aside_loses_nothing(*, is_clean: bool) -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem, is_clean=is_clean)
    start = len(filesystem.operations)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await trio.sleep(2)  # a checkpoint
    await check_images(filesystem, start, expected)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_d3_a_crash_while_a_log_is_put_back_loses_nothing(*, is_clean: bool) -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem, is_clean=is_clean)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await store.close()
    start = len(filesystem.operations)
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
    await check_images(filesystem, start, expected)


@pytest.mark.parametrize("slot_size_bytes", [64 * 1024, 64])
async def test_d3_a_crash_while_a_running_broker_sets_a_log_aside_loses_nothing(slot_size_bytes: int) -> None:
    """The journal has room for the barrier, or not."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options(journal_slot_size_bytes=slot_size_bytes)) as store:
        log = await open_orders(store, SMALL)
        await append(log, b"x")
        await trio.sleep(2)  # a slot
        for number in range(5):
            await append(log, b"record %d" % number)
        expected = await read_all(log)
        start = len(filesystem.operations)
        await store.strays.set_aside([ORDERS])
        await trio.sleep(70)  # a checkpoint
        await store.strays.put_back([ORDERS])
    await check_images(filesystem, start, expected)


async def test_a_log_kept_in_place_by_a_full_disk_is_served_when_it_is_named_again() -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem)
    filesystem.faults.append(Fault("write", errno.ENOSPC, "stray.metadata.tmp"))
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        assert filesystem.exists("/data/orders-0")
        await store.close()
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        await check_served(store, expected)


async def test_strays_are_put_back_though_the_disk_is_too_full_for_new_ones() -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await append(await store.open_partition(OTHER, SMALL, 0), b"x")
        await store.close()
    filesystem.faults.append(Fault("write", errno.ENOSPC, "stray.metadata.tmp"))
    problems: list[str] = []
    async with running(filesystem, problems=problems) as store:
        await store.strays.apply_fates(fates(lambda topic_id, _: topic_id == ORDERS.topic_id, Fate.UNNAMED))
        assert filesystem.exists("/data/other-0")
        assert store.had(OTHER)
        await check_served(store, expected)
    assert any("has logs that are to be strays" in one for one in problems)


async def test_a_log_whose_checkpoint_entry_could_not_be_written_is_put_back_later() -> None:
    filesystem = SimulatedFileSystem()
    expected = await filled(filesystem)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await trio.sleep(2)  # a checkpoint without it
        filesystem.faults.append(Fault("write", errno.ENOSPC, "checkpoint.tmp", is_lasting=True))
        assert await store.strays.put_back([ORDERS]) == {}
        with pytest.raises(StorageError, match="has not come into the checkpoint"):
            await open_orders(store, leader_epoch=1)
        filesystem.faults.clear()
        assert await store.strays.put_back([ORDERS]) == {ORDERS: BACK}
        await check_served(store, expected)


async def test_a_stray_is_not_put_back_beside_a_log_of_the_same_partition() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    await filled(filesystem)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await append(await open_orders(store, leader_epoch=1), b"new")
        await store.close()
    async with running(filesystem, problems=problems) as store:
        await store.strays.apply_fates(NAMED)
        log = await open_orders(store, leader_epoch=2)
        assert await read_all(log) == {0: b"new"}
    assert f"/data/{NAME} stays a stray: orders-0 is, or may be, there" in problems


async def test_the_newer_of_two_strays_of_a_partition_is_put_back() -> None:
    filesystem, now_ms = SimulatedFileSystem(), [NOW_MS]
    for value in (b"old", b"new"):
        async with running(filesystem, clock=lambda: now_ms[0]) as store:
            await append(await open_orders(store), value)
            await store.close()
        async with running(filesystem, clock=lambda: now_ms[0]) as store:
            await store.strays.apply_fates(UNNAMED)
            await store.close()
        now_ms[0] += 1000
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        assert await read_all(await open_orders(store, leader_epoch=1)) == {0: b"new"}
        assert [one.name for one in find_strays(filesystem, "/data")] == [NAME]


async def test_no_empty_log_takes_the_place_of_a_stray_that_cannot_be_put_back() -> None:
    """Only an unclean election, which gave up the stray's records, may create a new log."""
    filesystem = await with_stray()
    filesystem.damage(f"/data/{NAME}/stray.metadata", 12, b"?")
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        assert store.had(ORDERS), "it is lost, not to be made (RULES K8)"
        assert await store.strays.put_back([ORDERS]) == {ORDERS: STUCK}
        store.accept_loss(ORDERS)
        assert await store.strays.put_back([ORDERS]) == {}


async def test_a_stray_waits_for_a_log_dir_that_may_have_the_partition() -> None:
    """The stray is not deleted meanwhile, because the metadata name it."""
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    both = replace(options("/data", "/other"), stray_retention_ms=RETENTION_S * 1000)
    async with running(filesystem, both) as store:
        await store.strays.apply_fates(UNNAMED)
        await store.close()
    filesystem.faults.append(Fault("read", errno.EIO, "/other/meta.properties"))
    async with running(filesystem, both) as store:
        await store.strays.apply_fates(NAMED)
        store.strays.may_age = lambda: True
        await trio.sleep(3 * RETENTION_S)
        assert filesystem.exists(f"/data/{NAME}")
        await store.close()
    async with running(filesystem, both) as store:
        await store.strays.apply_fates(NAMED)
        assert filesystem.exists("/data/orders-0")


async def test_k21_a_log_dir_that_hangs_keeps_no_stray_of_another_one_from_being_put_back() -> None:
    filesystem = SimulatedFileSystem()
    topics = [TopicIdPartition(bytes([number] * 16), f"topic-{number}", 0) for number in range(1, 9)]
    async with running(filesystem, options("/data", "/other")) as store, trio.open_nursery() as nursery:
        for one in topics:
            await append(await store.open_partition(one, SMALL, 0), b"record")
        of_data, of_other = ([one for one in topics if directory_name(one) in each.names] for each in store.log_dirs)
        await store.strays.set_aside(of_other)
        async with store.log_dirs[0].commit_log.between_checkpoints():
            nursery.start_soon(store.strays.set_aside, of_data)
            await trio.testing.wait_all_tasks_blocked()
            assert await store.strays.put_back(of_other) == dict.fromkeys(of_other, BACK)
        await trio.testing.wait_all_tasks_blocked()
        assert await store.strays.put_back(of_data) == dict.fromkeys(of_data, BACK)


RETENTION_S = 600
KEEPING = replace(options(), stray_retention_ms=RETENTION_S * 1000)


async def run_for(filesystem: SimulatedFileSystem, seconds: float, *, may_age: bool = True) -> bool:
    """Run a broker for so long; returns whether the stray is there afterwards. The wall clock is far ahead."""
    async with running(filesystem, KEEPING, clock=lambda: NOW_MS + 10**12) as store:
        await store.strays.apply_fates(UNNAMED)
        store.strays.may_age = lambda: may_age
        await trio.sleep(seconds)
        await store.close()
    return filesystem.exists(f"/data/{NAME}")


async def with_stray() -> SimulatedFileSystem:
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    async with running(filesystem) as store:
        await store.strays.apply_fates(UNNAMED)
        await store.close()
    return filesystem


async def test_d3_a_stray_is_deleted_after_its_retention_of_running_time() -> None:
    filesystem = await with_stray()
    assert await run_for(filesystem, RETENTION_S / 2 + 1)
    await trio.sleep(RETENTION_S)  # the broker is down
    assert await run_for(filesystem, RETENTION_S / 2 - CHECK_INTERVAL_S + 1)
    assert not await run_for(filesystem, CHECK_INTERVAL_S + 1)


async def test_d3_time_without_a_metadata_session_does_not_count_and_deletes_nothing() -> None:
    filesystem = await with_stray()
    assert await run_for(filesystem, 3 * RETENTION_S, may_age=False)
    assert await run_for(filesystem, RETENTION_S - CHECK_INTERVAL_S + 1)
    assert await run_for(filesystem, 3 * RETENTION_S, may_age=False)


async def test_the_running_time_of_a_stray_begins_again_when_its_file_is_damaged() -> None:
    filesystem = await with_stray()
    assert await run_for(filesystem, RETENTION_S - CHECK_INTERVAL_S + 1)
    assert read_running_times(filesystem, "/data") == {NAME: (RETENTION_S - CHECK_INTERVAL_S) * 1000}
    filesystem.damage("/data/strays", 60, b"9")
    assert read_running_times(filesystem, "/data") == {}
    assert await run_for(filesystem, CHECK_INTERVAL_S + 1)


async def test_a_crash_while_a_stray_is_deleted_leaves_nothing_behind() -> None:
    filesystem = await with_stray()
    start = len(filesystem.operations)
    assert not await run_for(filesystem, RETENTION_S + 1)
    for image in images(filesystem.operations, start)[::5]:
        assert not await run_for(image, RETENTION_S + 1)
        assert [name for name in image.list_dir("/data") if "-" in name] == ["clean-shutdown"]


async def test_a_stray_with_damaged_metadata_is_kept_and_listed() -> None:
    filesystem = await with_stray()
    filesystem.damage(f"/data/{NAME}/stray.metadata", 12, b"?")
    [stray] = find_strays(filesystem, "/data")
    assert (stray.metadata, stray.topic, stray.key, stray.at_ms) == (None, UNKNOWN, KEY, NOW_MS)
    assert await run_for(filesystem, 2 * RETENTION_S)
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        assert filesystem.exists(f"/data/{NAME}")


async def test_a_directory_with_damaged_stray_metadata_is_not_opened() -> None:
    filesystem = await with_stray()
    filesystem.rename(f"/data/{NAME}", "/data/orders-0")
    filesystem.damage("/data/orders-0/stray.metadata", 12, b"?")
    async with running(filesystem) as store:
        await store.strays.apply_fates(NAMED)
        with pytest.raises(StorageError, match="has not come into the checkpoint"):
            await open_orders(store, leader_epoch=1)


async def test_a_log_that_is_not_synced_counts_as_whole_after_a_clean_stop_alone() -> None:
    for is_clean in (True, False):
        filesystem = SimulatedFileSystem()
        config = LogConfig(flush_policy=FlushPolicy.ASYNC)
        async with running(filesystem) as store:
            await append(await open_orders(store, config), b"a")
            if is_clean:
                await store.close()
        for fate_of in (UNNAMED, NAMED):
            async with running(filesystem) as store:
                await store.strays.apply_fates(fate_of)
                if fate_of is NAMED:
                    await open_orders(store, config, leader_epoch=1)
                    opening = resident(store).opening
                    assert opening is not None
                    assert opening.is_clean == is_clean
                await store.close()


def test_metadata_of_a_stray_are_read_as_they_were_written() -> None:
    for needs_scan in (True, False):
        for may_truncate in (True, False):
            metadata = StrayMetadata(ORDERS, NOW_MS, POINT, needs_scan, may_truncate)
            content = encode_metadata(metadata)
            assert decode_metadata(content, "file") == metadata
    for damaged in (
        b"",
        content[:-1],
        content.replace(b"orders", b"ordera"),
        content.replace(b"version=1", b"version=2"),
    ):
        with pytest.raises(StorageError, match="file"):
            decode_metadata(damaged, "file")


def test_a_stray_that_may_not_be_truncated_is_not_truncated_after_it_is_put_back() -> None:
    filesystem = SimulatedFileSystem()
    for name in ("/data", "/data/orders-0"):
        filesystem.make_dir(name)
    for name, content in (
        ("stray.metadata", encode_metadata(StrayMetadata(ORDERS, NOW_MS, POINT, needs_scan=True, may_truncate=False))),
        ("partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"),
    ):
        filesystem.open(f"/data/orders-0/{name}", create=True).write_at([content], 0)
    lock = filesystem.lock("/data/.lock")
    before = Prepared(
        lock, "", is_clean=True, checkpoint=Checkpoint(3, {}), journal=Found((), 3, ()), partition_names=["orders-0"]
    )
    after = resume(filesystem, "/data", before)
    assert after.checkpoint == Checkpoint(3, {KEY: POINT}, has_lost=True) == read_checkpoint(filesystem, "/data")
    assert after.to_scan == {"orders-0"}


def test_names_of_strays() -> None:
    assert Stray(f"{bytes(16).hex()}-12.34-stray", 0, None).key == (bytes(16), 12)
    older = Stray(f"a.b-c-3.{bytes(16).hex()}-stray", 0, None)
    assert (older.key, older.at_ms, older.topic) == (None, None, "a.b-c")
    assert Stray("x-stray", 0, None).topic == UNKNOWN


async def test_another_cluster_refuses_the_start_and_keeps_strays() -> None:
    filesystem = await with_stray()
    with pytest.RaisesGroup(StoreRefused):
        async with running(filesystem, options(cluster_id="other")):
            pass
    assert filesystem.exists(f"/data/{NAME}")
