"""Long polls: woken once, told what changed, at a cost that does not grow with what is watched."""

import pytest
import trio
import trio.testing

from engine.api import LogConfig, TopicPartition
from engine.errors import UnknownPartition
from engine.testing import MemoryFileSystem
from engine.tests.helpers import append, open_orders, running


async def test_woken_once_for_several_changes_and_told_which() -> None:
    async with running(MemoryFileSystem()) as store:
        logs = [await store.open_partition(TopicPartition(bytes(16), "t", n), LogConfig(), 0) for n in range(5)]
        waiter = store.new_waiter()
        for log in logs:
            waiter.watch(log)
        woken = []

        async def poll() -> None:
            await waiter.wait()
            woken.append(waiter.take_changed())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.testing.wait_all_tasks_blocked()
            assert woken == []
            for number in (3, 1):
                await append(logs[number], b"a")
        assert woken[0][0] is logs[3]
        await append(logs[1], b"b")
        await append(logs[1], b"c")
        await waiter.wait()
        rest = waiter.take_changed()
        assert logs[1] in rest
        assert len(rest) <= 2
        waiter.close()
        await append(logs[0], b"d")
        assert waiter.take_changed() == []


async def test_unwatched_partitions_are_not_reported() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store)
        waiter = store.new_waiter()
        waiter.watch(log)
        await append(log, b"a")
        waiter.unwatch(log)
        assert waiter.take_changed() == []
        await append(log, b"b")
        assert waiter.take_changed() == []


async def test_deletion_and_a_new_epoch_wake_the_waiter() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store)
        waiter = store.new_waiter()
        waiter.watch(log)
        await open_orders(store, leader_epoch=1)
        assert waiter.take_changed() == [log]
        await store.delete_partition(log.partition)
        await waiter.wait()
        assert waiter.take_changed() == [log]
        with pytest.raises(UnknownPartition):
            store.get(log.partition)


async def test_cost_of_a_change_does_not_grow_with_what_is_watched() -> None:
    """One change among 1,000 watched partitions is one entry to look at."""
    async with running(MemoryFileSystem()) as store:
        waiter = store.new_waiter()
        logs = []
        for number in range(1000):
            logs.append(await store.open_partition(TopicPartition(bytes(16), "t", number), LogConfig(), 0))
            waiter.watch(logs[-1])
        waiter.take_changed()
        await append(logs[500], b"a")
        assert waiter.take_changed() == [logs[500]]
