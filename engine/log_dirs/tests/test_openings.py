"""Many partitions made and deleted at once: fewer syncs, and no less is durable."""

import errno
import random

import trio

from engine.api import Leadership, TopicIdPartition
from engine.errors import EngineError, StorageError
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import append, options, running

MANY = [TopicIdPartition(bytes(range(16)), "many", number) for number in range(5)]


async def open_many(store: SegmentStore, leader_epoch: int = 0) -> list[Partition]:
    opened = await store.open_partitions([Leadership(one, LogConfig(), leader_epoch) for one in MANY])
    found = [one for one in opened if not isinstance(one, EngineError)]
    assert [one.partition for one in found] == MANY
    return found


async def test_many_new_partitions_share_their_syncs() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        filesystem.operations.clear()
        await open_many(store)
        kinds = [one.kind for one in filesystem.operations]
        assert (kinds.count("fdatasync"), kinds.count("sync_dir")) == (len(MANY), len(MANY) + 1)
        assert kinds.index("sync_dir") > max(at for at, kind in enumerate(kinds) if kind == "rename")


async def test_a_deletion_of_many_partitions_is_announced_once_and_synced_twice() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        for log in await open_many(store):
            await append(log, b"a")
        await trio.sleep(100)  # there is a journal
        filesystem.operations.clear()
        assert await store.delete_partitions(MANY) == [None] * len(MANY)
        done = [(one.kind, "/journal/" in one.path) for one in filesystem.operations if one.kind != "unlink"]
        renames, removals = [("rename", False)] * len(MANY), [("remove_dir", False)] * len(MANY)
        synced = [("sync_dir", False)]
        assert done[:2] == [("write", True), ("fdatasync", True)]
        assert done[2 : 4 + 2 * len(MANY)] == renames + synced + removals + synced


async def test_every_crash_while_many_are_made_leaves_each_as_good_as_new() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        start = len(filesystem.operations)
        await open_many(store)
    for count in range(start, len(filesystem.operations) + 1):
        for seed in (None, *range(5)):
            image = SimulatedFileSystem.replayed(filesystem.operations[:count])
            image.crash(None if seed is None else random.Random(seed))
            async with running(image) as store:
                for log in await open_many(store, leader_epoch=1):
                    assert (await append(log, b"x")).base_offset == 0


async def test_a_partition_that_cannot_be_opened_does_not_stop_the_others_of_its_request() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        filesystem.faults.append(Fault("make_dir", errno.ENOSPC, "many-2"))
        wanted = [Leadership(one, LogConfig(), 0) for one in MANY]
        found = await store.open_partitions(wanted)
        assert [isinstance(one, StorageError) for one in found] == [False, False, True, False, False]
        assert await store.delete_partitions(MANY[2:4]) != [None, None]
        assert [name for name in filesystem.list_dir("/data") if "many" in name] == ["many-0", "many-1", "many-4"]
        await open_many(store)


async def test_many_new_partitions_are_spread_over_the_log_dirs() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a", "/b")) as store:
        await open_many(store)
        counts = [sum("many" in name for name in filesystem.list_dir(path)) for path in ("/a", "/b")]
        assert sorted(counts) == [2, 3]
