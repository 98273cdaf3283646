"""The log dir of a partition while another log dir is offline: no second log of a partition that may be there."""

import errno

import pytest

from engine.api import TopicIdPartition
from engine.errors import StorageError
from engine.files.filesystem import replace_small
from engine.log_config import LogConfig
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import append, fates, open_orders, options, running

EMPTY = TopicIdPartition(bytes([5] * 16), "empty", 0)


@pytest.mark.parametrize("with_metadata", [True, False])
async def test_left_overs_of_an_opening_that_failed_are_no_log_while_that_of_the_partition_is_away(
    *, with_metadata: bool
) -> None:
    """A later start ignores them as well. An empty log that was opened there is a log: the checkpoint names it."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a")) as store:
        await store.open_partition(EMPTY, LogConfig(), 0)
        await store.close()
    checkpoint = filesystem.open("/a/checkpoint").read_at(0, 10_000)
    async with running(filesystem, options("/a")) as store:
        await open_orders(store)
        await store.close()
    replace_small(filesystem, "/a", "checkpoint", checkpoint)
    if not with_metadata:
        filesystem.unlink("/a/orders-0/partition.metadata")
    async with running(filesystem, options("/b")) as store:
        await append(await open_orders(store), b"x")
        await store.close()
    filesystem.faults.append(Fault("read", errno.EIO, "/b/meta.properties", is_lasting=True))
    for leader_epoch in (1, 2):
        async with running(filesystem, options("/a", "/b")) as store:
            await store.strays.apply_fates(fates(lambda *_: True))
            with pytest.raises(StorageError, match="may be on a log dir that is offline"):
                await open_orders(store, leader_epoch=leader_epoch)
            await store.open_partition(EMPTY, LogConfig(), leader_epoch)
            await store.close()


async def test_a_log_dir_that_fails_after_its_start_blocks_only_its_own_partitions() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a", "/b")) as store:
        first = await store.open_partition(EMPTY, LogConfig(), 0)
        path = first.log_dir.disk.path
        first.log_dir.disk.fail(OSError(errno.EIO, "broken by a test"))
        assert (await open_orders(store, leader_epoch=7)).log_end_offset == 0
        assert not filesystem.exists(f"{path}/orders-0")
        with pytest.raises(StorageError):
            await store.open_partition(EMPTY, LogConfig(), 1)
