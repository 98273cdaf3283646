"""What a leader may answer, and take alone, by what its followers have shown."""

import pytest

from engine.api import Leadership
from engine.errors import NotLeaderOrFollower
from engine.files.twin import MemoryFileSystem
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.partitions.tests.test_follower import others
from engine.replication.confirmations import LEASE_MS
from engine.roles import Confirming, Others
from engine.store import SegmentStore
from engine.tests.helpers import ORDERS, batch, running


class Clock:
    """The test's own."""

    now_ms = 10_000

    def confirming(self, *, accepts_alone: bool = False) -> Confirming:
        return Confirming(lambda: self.now_ms, lambda: True, accepts_alone)


async def leading(store: SegmentStore, known: Others | None, epoch: int = 0) -> Partition:
    [log] = await store.open_partitions([Leadership(ORDERS, LogConfig(), epoch, known)])
    assert isinstance(log, Partition)
    return log


async def test_a_leader_of_the_only_replica_there_is_asks_nobody() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await leading(store, None, epoch=3)
        assert (log.is_confirmed, log.answers_in_ms) == (True, 0)


async def test_a_leader_is_confirmed_by_those_who_fetch_its_partition_in_its_epoch() -> None:
    clock = Clock()
    async with running(MemoryFileSystem()) as store:
        log = await leading(store, others(1, 2, 3)._replace(confirming=clock.confirming()), epoch=1)
        assert log.answers_in_ms == LEASE_MS
        clock.now_ms += LEASE_MS
        for replica, is_confirmed in ((2, False), (3, True)):
            log.fetched_by(replica, 0, leader_epoch=1, offset=0, last_epoch=-1, as_of_ms=clock.now_ms)
            assert log.is_confirmed == is_confirmed
        clock.now_ms += LEASE_MS
        assert not log.is_confirmed


async def test_a_leader_that_has_left_answers_no_more() -> None:
    clock, has_left = Clock(), list[bool]()
    confirming = clock.confirming()._replace(has_left=lambda: bool(has_left))
    async with running(MemoryFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=confirming), epoch=1)
        clock.now_ms += LEASE_MS
        log.fetched_by(2, 0, leader_epoch=1, offset=0, last_epoch=-1, as_of_ms=clock.now_ms)
        assert log.is_confirmed
        has_left.append(True)
        assert not log.is_confirmed


@pytest.mark.parametrize(("epoch", "waits", "wait_ms"), [(0, True, 0), (1, True, LEASE_MS), (1, False, 0)])
async def test_a_leader_waits_for_the_one_before_unless_that_is_known_not_to_answer(
    epoch: int, wait_ms: int, *, waits: bool
) -> None:
    known = others(1, 2)._replace(confirming=Clock().confirming(), waits=waits)
    async with running(MemoryFileSystem()) as store:
        assert (await leading(store, known, epoch)).answers_in_ms == wait_ms


@pytest.mark.parametrize("accepts_alone", [False, True])
async def test_acks_of_a_leader_alone_need_a_successor_that_was_heard_of(*, accepts_alone: bool) -> None:
    clock = Clock()
    async with running(MemoryFileSystem()) as store:
        confirming = clock.confirming(accepts_alone=accepts_alone)
        log = await leading(store, others(1, 2)._replace(confirming=confirming), epoch=1)
        await log.append(memoryview(batch(b"it has just begun")), acks=1).wait()
        clock.now_ms += LEASE_MS
        if accepts_alone:
            await log.append(memoryview(batch(b"x")), acks=1).wait()
        else:
            with pytest.raises(NotLeaderOrFollower):
                log.append(memoryview(batch(b"x")), acks=1)
        log.append(memoryview(batch(b"all say themselves that they have it")), acks=-1)
        end_offset = log.log_end_offset
        log.fetched_by(2, 0, leader_epoch=1, offset=end_offset, last_epoch=1, as_of_ms=clock.now_ms)
        await log.append(memoryview(batch(b"x")), acks=1).wait()
