"""Preallocation: a new segment gets its space at once, and the unused rest is freed."""

import dataclasses
import errno

import pytest

from engine.log_config import LogConfig
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import ORDERS, append, batch, open_orders, options, read_all, running

CONFIG = LogConfig(segment_size_bytes=400, preallocate=True)


def taken(filesystem: SimulatedFileSystem) -> list[int]:
    """Allocated bytes of the segments, in order."""
    directory = "/data/orders-0"
    names = [name for name in filesystem.list_dir(directory) if name.endswith(".log")]
    return [filesystem.allocated_bytes(f"{directory}/{name}") for name in names]


@pytest.mark.parametrize("open_files_max", [1, 100])
async def test_only_the_active_segment_keeps_preallocated_space(open_files_max: int) -> None:
    filesystem = SimulatedFileSystem()
    scarce = dataclasses.replace(options(), open_files_max=open_files_max)
    async with running(filesystem, scarce) as store:
        log = await open_orders(store, CONFIG)
        other = await store.open_partition(ORDERS._replace(partition=1), CONFIG, 0)
        assert taken(filesystem) == [400]
        for number in range(12):
            await append(log, b"value %d" % number)
            await append(other, b"value")  # the file of the first is closed if only one may be open
        assert len(taken(filesystem)) > 2
        assert set(taken(filesystem)[:-1]) == {0}
        assert taken(filesystem)[-1] == 400
        await store.close()
    assert set(taken(filesystem)) == {0}


async def test_several_segments_begun_in_one_round() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG)
        pending = [log.append(memoryview(batch(bytes(200))), acks=-1) for _ in range(4)]
        for one in pending:
            await one.wait()
        assert taken(filesystem) == [0, 0, 0, 400]


async def test_after_a_kill_or_a_change_of_mind_the_space_is_given_back_when_the_segment_ends() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store, CONFIG), b"first")
    assert taken(filesystem) == [400]
    async with running(filesystem) as store:
        log = await open_orders(store, dataclasses.replace(CONFIG, preallocate=False), 1)
        await append(log, bytes(300))
        assert taken(filesystem) == [0, 0]


async def test_an_empty_segment_is_preallocated_again_after_a_clean_stop() -> None:
    filesystem = SimulatedFileSystem()
    for epoch in range(2):
        async with running(filesystem) as store:
            await open_orders(store, CONFIG, epoch)
            assert taken(filesystem) == [400]
            await store.close()
        assert taken(filesystem) == [0]


async def test_a_truncated_segment_still_frees_its_preallocated_space_at_the_roll() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG)
        for value in (b"a", b"b"):
            await append(log, value)
        await store.truncate_partition(ORDERS, 1, below_sealed=True)
        await append(log, bytes(300))
        assert taken(filesystem) == [0, 400]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC])
async def test_a_failed_preallocation_is_logged_once_and_segments_grow_without_it(number: int) -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    filesystem.faults.append(Fault("allocate", number, is_lasting=True))
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, CONFIG)
        for count in range(12):
            await append(log, b"value %d" % count)
        assert len(await read_all(log)) == 12
    assert set(taken(filesystem)) == {0}
    assert problems == ["/data: segments are not preallocated: injected"]
