"""Long polls: woken once, with the changed partitions, at a cost independent of the number of watched partitions."""

import random

import pytest
import trio
import trio.testing

from engine.api import TopicIdPartition
from engine.errors import UnknownPartition
from engine.log_config import LogConfig
from engine.partitions.waiters import Changes, Waiter
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import append, open_orders, running


async def test_a_waiter_is_woken_once_for_several_changes_and_returns_the_changed_partitions() -> None:
    async with running(SimulatedFileSystem()) as store:
        logs = [await store.open_partition(TopicIdPartition(bytes(16), "t", n), LogConfig(), 0) for n in range(5)]
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
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        waiter = store.new_waiter()
        waiter.watch(log)
        await append(log, b"a")
        waiter.unwatch(log)
        assert waiter.take_changed() == []
        await append(log, b"b")
        assert waiter.take_changed() == []


async def test_deletion_and_a_new_epoch_wake_the_waiter() -> None:
    async with running(SimulatedFileSystem()) as store:
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


async def test_a_change_among_many_watched_partitions_returns_that_partition_alone() -> None:
    """A change among 1,000 watched partitions gives one changed partition."""
    async with running(SimulatedFileSystem()) as store:
        waiter = store.new_waiter()
        logs = []
        for number in range(1000):
            logs.append(await store.open_partition(TopicIdPartition(bytes(16), "t", number), LogConfig(), 0))
            waiter.watch(logs[-1])
        waiter.take_changed()
        await append(logs[500], b"a")
        assert waiter.take_changed() == [logs[500]]


class CountingWaiter(Waiter):
    """A waiter that counts the notes of changes."""

    calls = 0

    def note(self, changes: Changes) -> None:
        self.calls += 1
        super().note(changes)


@pytest.mark.sources
async def test_a_change_is_noted_once_for_a_waiter_that_does_not_take_it() -> None:
    """A change is noted once in a thousand sessions that do not take it, and each time in a session that does."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        idle, looking = [CountingWaiter() for _ in range(1000)], CountingWaiter()
        for waiter in (*idle, looking):
            waiter.watch(log)
        for _ in range(50):
            await append(log, b"a")
            assert looking.take_changed() == [log]
        assert looking.calls == 50
        assert {waiter.calls for waiter in idle} == {1}
        assert [waiter.take_changed() for waiter in idle] == [[log]] * 1000
        await append(log, b"a")
        assert {waiter.calls for waiter in idle} == {2}


class ModelWaiter:
    """A model of a waiter: the watched and the changed partitions."""

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.changed: list[int] = []


@pytest.mark.sources
@pytest.mark.parametrize("seed", range(20))
async def test_waiters_return_every_change_under_any_order_of_operations(seed: int) -> None:
    rng = random.Random(seed)
    async with running(SimulatedFileSystem()) as store:
        logs = [await store.open_partition(TopicIdPartition(bytes(16), "t", n), LogConfig(), 0) for n in range(4)]
        waiters = [CountingWaiter() for _ in range(5)]
        models = [ModelWaiter() for _ in waiters]
        takes = 0
        for _ in range(400):
            number, waiter_number = rng.randrange(len(logs)), rng.randrange(len(waiters))
            waiter, model = waiters[waiter_number], models[waiter_number]
            match rng.choice(["change", "change", "watch", "unwatch", "take", "close"]):
                case "change":
                    logs[number].announce_change()
                    for one in models:
                        if number in one.watched and number not in one.changed:
                            one.changed.append(number)
                case "watch":
                    waiter.watch(logs[number])
                    model.watched.append(number)
                case "unwatch":
                    waiter.unwatch(logs[number])
                    model.watched = [one for one in model.watched if one != number]
                    model.changed = [one for one in model.changed if one != number]
                case "take":
                    assert waiter.take_changed() == [logs[one] for one in model.changed]
                    takes += len(model.changed)
                    model.changed = []
                case _ if rng.random() < 0.2:
                    waiter.close()
                    models[waiter_number] = ModelWaiter()
        assert takes > 20
