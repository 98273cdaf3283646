"""What a leader may answer, and take alone, by what its followers have shown."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio.testing

from engine.api import FIRST_PROTOCOL, Isolation, Leadership, Marker, Outcome, PendingAppend
from engine.batches.batch import Record, build_batch
from engine.errors import (
    EngineError,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from engine.files.twin import MemoryFileSystem
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.partitions.tests.test_follower import others
from engine.partitions.tests.test_joining import Asked, outcome_of, send
from engine.replication.confirmations import LEASE_MS
from engine.roles import Confirming, Others
from engine.store import SegmentStore
from engine.tests.helpers import NOW_MS, ORDERS, batch, running


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
            log.fetched_by(
                replica, 0, leader_epoch=1, offset=0, last_epoch=-1, log_start_offset=0, as_of_ms=clock.now_ms
            )
            assert log.is_confirmed == is_confirmed
        clock.now_ms += LEASE_MS
        assert not log.is_confirmed


async def test_a_leader_that_has_left_answers_no_more() -> None:
    clock, has_left = Clock(), list[bool]()
    confirming = clock.confirming()._replace(has_left=lambda: bool(has_left))
    async with running(MemoryFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=confirming), epoch=1)
        clock.now_ms += LEASE_MS
        log.fetched_by(2, 0, leader_epoch=1, offset=0, last_epoch=-1, log_start_offset=0, as_of_ms=clock.now_ms)
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
        log.fetched_by(2, 0, leader_epoch=1, offset=end_offset, last_epoch=1, log_start_offset=0, as_of_ms=clock.now_ms)
        await log.append(memoryview(batch(b"x")), acks=1).wait()


class Followed:
    """A leader in epoch 1 and its one follower, which has all there is and shows that it knows of no other leader, as
    often as the test says."""

    def __init__(self, log: Partition, clock: Clock) -> None:
        self.log = log
        self._clock = clock

    async def fetch(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        offset, now_ms = self.log.log_end_offset, self._clock.now_ms
        self.log.fetched_by(
            2, 0, leader_epoch=1, offset=offset, last_epoch=1 if offset else -1, log_start_offset=0, as_of_ms=now_ms
        )

    def stand_still(self) -> None:
        self._clock.now_ms += LEASE_MS

    async def taken(self, pending: PendingAppend) -> int:
        await self.fetch()
        return (await pending.wait()).base_offset

    def plain(self, epoch: int, sequence: int) -> PendingAppend:
        records = build_batch([Record(b"k", b"v", NOW_MS)], producer=(7, epoch, sequence))
        return self.log.append(memoryview(records), acks=-1)

    def end(self, epoch: int = 0, coordinator_epoch: int = 0) -> PendingAppend:
        return self.log.end_transaction(Marker(7, epoch, coordinator_epoch, Outcome.ABORT, FIRST_PROTOCOL))

    async def begin(self) -> Asked:
        """A transaction of producer 7, with sequence 0."""
        asked = Asked(FIRST_PROTOCOL)
        pending = send(self.log, asked, (7, 0, 0))
        asked.permits[0].settle()
        await self.taken(pending)
        return asked


@asynccontextmanager
async def followed() -> AsyncIterator[Followed]:
    clock = Clock()
    async with running(MemoryFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        clock.now_ms += LEASE_MS
        yield Followed(log, clock)


@pytest.mark.parametrize("is_over", [False, True])
async def test_the_end_that_a_successor_wrote_before_refuses_nothing_of_the_next_transaction(*, is_over: bool) -> None:
    """The marker was on its way when the leader was stopped. Its successor was asked again and ended the transaction,
    the producer began the next one, and did not know either who leads: its batch comes to a log in which the old one is
    open, so that it asks for no permission, and the old marker comes, too."""
    async with followed() as leader:
        asked = await leader.begin()
        if is_over:
            leader.stand_still()
        ending, following = leader.end(), send(leader.log, asked, (7, 0, 1))
        assert isinstance(await outcome_of(following), NotLeaderOrFollower if is_over else InvalidTxnState)
        assert len(asked.permits) == 1
        await leader.taken(ending)
        again = send(leader.log, asked, (7, 0, 1))
        asked.permits[1].settle()
        assert await leader.taken(again) == 2, "nobody has succeeded it"


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda leader: leader.plain(1, 5), OutOfOrderSequence),
        (lambda leader: leader.plain(0, 0), InvalidProducerEpoch),
        (lambda leader: leader.end(1, coordinator_epoch=2), TransactionCoordinatorFenced),
    ],
)
async def test_who_may_have_been_succeeded_refuses_nothing_by_what_is_known_of_producers_here(
    refused: Callable[[Followed], PendingAppend], error: type[EngineError], *, is_over: bool
) -> None:
    async with followed() as leader:
        await leader.taken(leader.end(1, coordinator_epoch=3))
        await leader.taken(leader.plain(1, 0))
        if is_over:
            leader.stand_still()
        outcome = await outcome_of(refused(leader))
        assert isinstance(outcome, NotLeaderOrFollower if is_over else error)
        await leader.fetch()
        assert isinstance(await outcome_of(refused(leader)), error)


async def test_what_is_refused_for_now_is_waited_for_by_what_is_behind_it() -> None:
    """Or that would pass for the beginning of its producer (KAFKA-14359)."""
    async with followed() as leader:
        asked = Asked(FIRST_PROTOCOL)
        first = send(leader.log, asked, (7, 0, 0))
        ending = leader.end()
        await trio.testing.wait_all_tasks_blocked()
        leader.log.log.producers.expire(2**62)
        asked.permits[0].settle()
        assert isinstance(await outcome_of(first), NotLeaderOrFollower)
        await leader.taken(ending)
        second = send(leader.log, asked, (7, 0, 1))
        asked.permits[1].settle()
        assert isinstance(await outcome_of(second), OutOfOrderSequence)


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_duplicate_needs_no_lease(*, is_over: bool) -> None:
    """What all in sync have, a successor has."""
    async with followed() as leader:
        await leader.taken(leader.plain(0, 0))
        if is_over:
            leader.stand_still()
        assert await outcome_of(leader.plain(0, 0)) == 0


async def test_who_may_have_been_succeeded_tells_no_reader_that_there_is_nothing_so_far_on() -> None:
    """Who has read on in the log of a successor would begin anew."""
    async with followed() as leader:
        await leader.taken(leader.plain(0, 0))
        log = leader.log

        async def is_told(error: type[EngineError], offset: int) -> None:
            with pytest.raises(error):
                log.read(offset, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
            with pytest.raises(error):
                await log.load(offset, 1000)

        await is_told(OffsetOutOfRange, 2)
        leader.stand_still()
        await is_told(NotLeaderOrFollower, 2)
        await is_told(OffsetOutOfRange, -1)
        await leader.fetch()
        await is_told(OffsetOutOfRange, 2)
