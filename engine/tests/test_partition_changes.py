"""Changes of partitions go on in each log dir separately; a suspended partition serves nothing (RULES K34)."""

import pytest
import trio
import trio.testing

from engine.api import Following, Isolation, Leadership, TopicIdPartition
from engine.errors import NotLeaderOrFollower, StorageError
from engine.files.disk import DiskWorkers
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.replication.exchange import FollowerFetch
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool
from testkit.logs import ORDERS, append, batch, options, running
from testkit.replicas import others

CONFIG = LogConfig()
WORKERS_OF_A = DiskWorkers.of(0, options().reader_workers)
FIRST, SECOND, THIRD, FOURTH = (TopicIdPartition(bytes([1] * 16), "new", number) for number in range(4))


def roles(*partitions: TopicIdPartition) -> list[Leadership]:
    return [Leadership(one, CONFIG, 0) for one in partitions]


async def two_led(store: SegmentStore) -> None:
    """Lead the first partition on /a, and the second on /b."""
    for one, path in ((FIRST, "/a"), (SECOND, "/b")):
        assert (await store.open_partition(one, CONFIG, 0)).log_dir.disk.path == path


async def test_a_hanging_log_dir_does_not_delay_role_changes_in_another() -> None:
    """The same holds if one call changes partitions of both log dirs, and another call follows."""
    pool = SimulatedPool()
    async with running(SimulatedFileSystem(), options("/a", "/b"), pool=pool) as store, trio.open_nursery() as nursery:
        await two_led(store)
        pool.delays.hang(WORKERS_OF_A.all)
        nursery.start_soon(store.open_partitions, roles(THIRD, FOURTH))
        with trio.fail_after(1):
            await trio.testing.wait_all_tasks_blocked()
            [led] = await store.open_partitions([Leadership(FOURTH, CONFIG, 1)])
        assert isinstance(led, Partition)
        assert (led.log_dir.disk.path, led.leader_epoch) == ("/b", 1)
        with trio.fail_after(1):
            assert await store.delete_partitions([FOURTH, SECOND]) == [None, None]
        pool.delays.set(WORKERS_OF_A.all)


async def test_a_new_partition_goes_to_a_log_dir_that_is_not_behind_if_there_is_one() -> None:
    async with running(SimulatedFileSystem(), options("/a", "/b")) as store:
        await two_led(store)
        for behind, chosen in ((("/a",), "/b"), (("/a", "/b"), "/a")):
            for one in store.log_dirs:
                one.behind_since_s = 0.0 if one.disk.path in behind else None
            assert store.changes.home(THIRD, 0).disk.path == chosen
            store.changes.forget_home(THIRD)


async def test_a_chosen_log_dir_stays_chosen_until_the_partition_is_opened() -> None:
    async with running(SimulatedFileSystem(), options("/a", "/b")) as store:
        await two_led(store)
        chosen = store.changes.home(THIRD, 0)
        assert store.changes.home(FOURTH, 0) is not chosen, "what is about to be made counts"
        chosen.behind_since_s = 0.0
        assert store.changes.home(THIRD, 0) is store.changes.known_home(THIRD) is chosen
        assert (await store.open_partition(THIRD, CONFIG, 0)).log_dir is chosen
        renamed = TopicIdPartition(bytes(16), FOURTH.topic, FOURTH.partition)
        assert store.changes.home(renamed, 0) is store.changes.known_home(FOURTH), "of another topic of that name"
        assert not store.changes._coming[chosen]


async def suspended(store: SegmentStore) -> Partition:
    log = await store.open_partition(ORDERS, CONFIG, 0)
    await append(log, b"x")
    store.changes.suspend(ORDERS, None)
    return log


async def test_a_suspended_partition_serves_nothing() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await suspended(store)
        for refused in (
            lambda: store.get(ORDERS),
            lambda: store.replica(ORDERS),
            lambda: log.append(memoryview(batch(b"y")), acks=1),
            lambda: log.read(0, 100, Isolation.READ_UNCOMMITTED, at_least_one=True),
            log.followers.propose,
        ):
            with pytest.raises(NotLeaderOrFollower, match="behind"):
                refused()
        outcomes: list[bool] = []
        log.confirm(outcomes.append)
        assert outcomes == [False]
        assert (log.is_led, log.is_current, log.is_closed) == (False, False, False)


async def test_appends_that_wait_for_other_replicas_fail_when_the_partition_is_suspended() -> None:
    async with running(SimulatedFileSystem()) as store:
        [log] = await store.open_partitions([Leadership(ORDERS, CONFIG, 0, others(1, 2))])
        assert isinstance(log, Partition)
        pending = log.append(memoryview(batch(b"x")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        store.changes.suspend(ORDERS, None)
        with pytest.raises(NotLeaderOrFollower):
            await pending.wait()


async def test_appends_on_their_way_to_disk_are_not_acknowledged_after_a_suspension() -> None:
    """The append may reach the disk, below the begin of the next epoch."""
    pool = SimulatedPool()
    async with running(SimulatedFileSystem(), options("/a"), pool=pool) as store:
        log = await store.open_partition(ORDERS, CONFIG, 0)
        pool.delays.hang(WORKERS_OF_A.all)
        staged = log.append(memoryview(batch(b"x")), acks=1)
        await trio.testing.wait_all_tasks_blocked()
        queued = log.append(memoryview(batch(b"y")), acks=1)
        store.changes.suspend(ORDERS, None)
        pool.delays.set(WORKERS_OF_A.all)
        for one in (staged, queued):
            with pytest.raises(NotLeaderOrFollower):
                await one.wait()
        log = await store.open_partition(ORDERS, CONFIG, 1)
        assert log.log_end_offset == 1
        assert log.log.epochs.end_of(0, 1, 0).end_offset == 1


async def test_only_the_newest_role_ends_a_suspension() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await suspended(store)
        await store.open_partitions([Leadership(ORDERS, CONFIG, 1)], newest=lambda _: None)
        assert (log.is_suspended, log.leader_epoch) == (True, 0)
        await store.open_partitions([Following(ORDERS, CONFIG, 2)])
        assert (log.is_suspended, log.is_led, log.leader_epoch) == (False, False, 2)
        assert log.fetching is not None


async def test_a_log_that_is_made_for_a_role_that_is_no_longer_newest_waits_for_the_next() -> None:
    async with running(SimulatedFileSystem()) as store:
        [found] = await store.open_partitions(roles(ORDERS), newest=lambda _: None)
        assert isinstance(found, NotLeaderOrFollower)
        log = await store.open_partition(ORDERS, CONFIG, 1)
        assert (log.is_led, log.leader_epoch) == (True, 1)
        await append(log, b"x")


async def test_a_role_that_is_refused_ends_no_suspension() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await store.open_partition(ORDERS, CONFIG, 3)
        store.changes.suspend(ORDERS, None)
        [error] = await store.open_partitions(roles(ORDERS))
        assert not isinstance(error, Partition)
        assert log.is_suspended


async def test_a_partition_that_has_the_wanted_role_is_not_suspended() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await store.open_partition(ORDERS, CONFIG, 3)
        found = []
        for wanted in ((True, 3), (True, 4), (False, 3)):
            store.changes.suspend(ORDERS, wanted)
            found.append(log.is_suspended)
            await store.open_partition(ORDERS, CONFIG, 3)
        assert found == [False, True, True]


def asked(log: Partition) -> FollowerFetch | None:
    """The next Fetch of a follower; None: it sends none now."""
    return None if log.fetching is None else log.fetching.ask(log.log_state)


async def test_a_follower_resumed_in_its_epoch_fetches_again() -> None:
    """A Fetch was open when the follower was suspended, and its answer is lost."""
    async with running(SimulatedFileSystem()) as store:
        role = Following(ORDERS, CONFIG, 1)
        [log] = await store.open_partitions([role])
        assert isinstance(log, Partition)
        assert asked(log) is not None
        store.changes.suspend(ORDERS, None)
        assert asked(log) is None
        changes = log.log_dir.role_changes
        await store.open_partitions([role])
        assert log.log_dir.role_changes > changes, "fetchers look again"
        assert asked(log) is not None


async def test_a_leader_resumed_in_its_epoch_learns_the_newest_committed_isr() -> None:
    async with running(SimulatedFileSystem()) as store:
        [log] = await store.open_partitions([Leadership(ORDERS, CONFIG, 1, others(1, 2))])
        assert isinstance(log, Partition)
        store.changes.suspend(ORDERS, None)
        await store.open_partitions([Leadership(ORDERS, CONFIG, 1, others(1, 2, version=5))])
        assert log.followers.replicas is not None
        assert log.followers.replicas.version == 5


async def test_a_failing_log_dir_closes_its_suspended_partitions_for_good() -> None:
    async with running(SimulatedFileSystem(), options("/a", "/b")) as store:
        log = await suspended(store)
        log.log_dir.disk.fail(OSError("broken by a test"))
        assert log.is_closed
        [error] = await store.open_partitions([Leadership(ORDERS, CONFIG, 1)])
        assert isinstance(error, StorageError)
