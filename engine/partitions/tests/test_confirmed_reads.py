"""Confirmed reads: the replies of a leader depend on the Fetches of its followers (RULES K24)."""

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
from engine.log_config import LogConfig
from engine.partitions.confirmed_reads import RECENT_MS
from engine.partitions.partition import Partition
from engine.partitions.suspension import take_role
from engine.partitions.tests.test_joining import Asked, outcome_of, send
from engine.replica_log import SessionFetch
from engine.roles import ReplicaSet
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.waiting_reads import AsOf, ConfirmationInputs, EventClock, WaitingReads
from testkit.logs import NOW_MS, ORDERS, batch, running
from testkit.replicas import others


class Clock:
    """A clock that the test sets, with the waiting reads and the metadata session of a broker."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.has_session = True
        self.reads = WaitingReads(EventClock(lambda: self.now_ms))

    def confirming(self) -> ConfirmationInputs:
        return ConfirmationInputs(lambda: self.has_session, self.reads)


async def leading(store: SegmentStore, known: ReplicaSet | None, epoch: int = 0) -> Partition:
    [log] = await store.open_partitions([Leadership(ORDERS, LogConfig(), epoch, known)])
    assert isinstance(log, Partition)
    return log


def follower_fetches(log: Partition, clock: Clock, replica: int, as_of: AsOf | None = None) -> None:
    """Let the leader receive a Fetch, by default one that was made just now."""
    offset = log.log_end_offset
    log.followers.fetched(
        replica,
        0,
        leader_epoch=1,
        offset=offset,
        last_epoch=1 if offset else -1,
        log_start_offset=0,
        as_of=clock.reads.clock.next() if as_of is None else as_of,
    )
    clock.reads.check()


async def test_a_leader_of_the_only_replica_confirms_at_once() -> None:
    outcomes: list[bool] = []
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, None, epoch=3)
        log.confirm(outcomes.append)
        assert (log.is_current, outcomes) == (True, [True])


async def test_a_read_is_confirmed_after_all_possible_successors_have_fetched_since_it_came() -> None:
    clock, outcomes = Clock(), list[bool]()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2, 3)._replace(confirming=clock.confirming()), epoch=1)
        before = clock.reads.clock.next()
        log.confirm(outcomes.append)
        for replica, as_of in ((2, before), (3, None), (2, before)):
            follower_fetches(log, clock, replica, as_of)
            assert not outcomes
        assert len(clock.reads) == 1
        follower_fetches(log, clock, 2)
        assert (outcomes, len(clock.reads)) == ([True], 0)


async def test_a_replica_that_left_the_isr_is_not_waited_for() -> None:
    clock, outcomes = Clock(), list[bool]()
    known = others(1, 2, 3)._replace(confirming=clock.confirming())
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known, epoch=1)
        log.confirm(outcomes.append)
        follower_fetches(log, clock, 2)
        assert not outcomes
        log.followers.learn(known.committed._replace(version=known.committed.version + 1, in_sync=frozenset({1, 2})))
        assert outcomes == [True]


async def test_a_replica_of_the_elr_is_waited_for() -> None:
    clock, outcomes = Clock(), list[bool]()
    known = others(1, 2, 3)._replace(confirming=clock.confirming())
    committed = known.committed._replace(in_sync=frozenset({1, 2}), eligible=frozenset({3}))
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known._replace(committed=committed), epoch=1)
        log.confirm(outcomes.append)
        follower_fetches(log, clock, 2)
        assert not outcomes
        follower_fetches(log, clock, 3)
        assert outcomes == [True]


async def test_without_a_successor_the_metadata_confirm_a_read() -> None:
    clock, outcomes = Clock(), list[bool]()
    known = others(1, 2)._replace(confirming=clock.confirming())
    alone = known._replace(committed=known.committed._replace(in_sync=frozenset({1})))
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, alone, epoch=1)
        before = clock.reads.clock.next()
        log.confirm(outcomes.append)
        assert clock.reads.needs_metadata
        follower_fetches(log, clock, 2)
        clock.reads.confirm(before)
        assert not outcomes
        clock.reads.confirm(clock.reads.clock.next())
        assert outcomes == [True]


async def test_a_read_fails_at_its_timeout_and_at_the_end_of_the_leadership() -> None:
    clock, outcomes = Clock(), list[bool]()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        log.confirm(outcomes.append)
        clock.now_ms += 1
        log.confirm(outcomes.append)
        assert len(clock.reads) == 2
        clock.reads.expire(clock.now_ms - 1)
        assert outcomes == [False]
        log.follow(LogConfig(), 2)
        assert (outcomes, len(clock.reads)) == ([False, False], 0)
        log.confirm(outcomes.append)
        assert outcomes == [False] * 3


async def test_a_partition_that_is_closed_confirms_nothing() -> None:
    clock, outcomes = Clock(), list[bool]()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        log.confirm(outcomes.append)
        log.close(lambda: NotLeaderOrFollower("closed"))
        log.confirm(outcomes.append)
        assert outcomes == [False, False]


async def test_a_read_hurries_the_fetches_of_the_sessions_that_confirm_it() -> None:
    clock, session_fetch = Clock(), SessionFetch()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        as_of = clock.reads.clock.next()
        log.followers.fetched(
            2, 0, leader_epoch=1, offset=0, last_epoch=-1, log_start_offset=0, as_of=as_of, session_fetch=session_fetch
        )
        assert session_fetch.hurried_to < as_of.order
        log.confirm(lambda _: None)
        assert session_fetch.hurried_to > as_of.order
        assert session_fetch.hurried_to < clock.reads.clock.next().order


async def test_a_fetch_before_a_suspension_confirms_no_read_after_it() -> None:
    """A fetch session goes on after a suspension, but the follower has not requested the partition again."""
    clock, session_fetch, outcomes = Clock(), SessionFetch(), list[bool]()
    known = others(1, 2)._replace(confirming=clock.confirming())
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known, epoch=1)
        as_of = clock.reads.clock.next()
        log.followers.fetched(
            2, 0, leader_epoch=1, offset=0, last_epoch=-1, log_start_offset=0, as_of=as_of, session_fetch=session_fetch
        )
        log.suspend()
        take_role(log, Leadership(ORDERS, LogConfig(), 1, known))
        log.confirm(outcomes.append)
        session_fetch.asked(0, clock.reads.clock.next())
        clock.reads.check()
        assert outcomes == []
        follower_fetches(log, clock, 2)
        assert outcomes == [True]


async def test_a_damaged_leader_raises_offset_out_of_range_for_a_negative_offset() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, None, epoch=1)
        log.log.damaged_from = 0
        with pytest.raises(OffsetOutOfRange):
            log.read(-1, 100, Isolation.READ_UNCOMMITTED, at_least_one=True)


async def test_a_successor_that_is_down_is_not_waited_for_alone() -> None:
    clock = Clock()
    known = others(1, 2, 3)._replace(confirming=clock.confirming())
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known, epoch=1)
        log.confirm(lambda _: None)
        assert not clock.reads.needs_metadata
        version = known.committed.version + 1
        log.followers.learn(known.committed._replace(version=version, serving=frozenset({1, 2})))
        assert clock.reads.needs_metadata


@pytest.mark.parametrize(
    ("min_isr", "fetching", "is_enough"),
    [(1, (), False), (1, (2,), True), (2, (), False), (2, (2,), True), (3, (2,), False), (3, (2, 3), True)],
)
async def test_a_leader_without_a_session_is_current_while_enough_followers_fetch(
    min_isr: int, fetching: tuple[int, ...], *, is_enough: bool
) -> None:
    clock = Clock()
    known = others(1, 2, 3)._replace(confirming=clock.confirming())
    known = known._replace(committed=known.committed._replace(min_isr=min_isr))
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known, epoch=1)
        clock.has_session = False
        clock.now_ms += known.lag_max_ms
        assert is_current(log), "it has just begun"
        for one in fetching:
            follower_fetches(log, clock, one)
        clock.now_ms += known.lag_max_ms
        assert is_current(log) == is_enough
        clock.now_ms += 1
        assert not is_current(log)
        clock.has_session = True
        assert is_current(log)


async def test_a_leader_alone_in_the_isr_is_current_without_a_session_if_min_isr_is_1() -> None:
    clock = Clock()
    known = others(1, 2, 3)._replace(confirming=clock.confirming())
    alone = known.committed._replace(in_sync=frozenset({1}))
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, known._replace(committed=alone), epoch=1)
        clock.has_session = False
        clock.now_ms += 2 * known.lag_max_ms
        assert is_current(log)
        log.followers.learn(alone._replace(version=alone.version + 1, min_isr=2))
        assert not is_current(log)


def is_current(log: Partition) -> bool:
    """Return the property by a call, so that the type checker does not assume its earlier value."""
    return log.is_current


async def test_an_append_with_acks_1_waits_for_no_confirmation() -> None:
    clock = Clock()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        clock.has_session = False
        clock.now_ms += 1_000_000
        assert (await log.append(memoryview(batch(b"x")), acks=1).wait()).base_offset == 0


class Followed:
    """A leader in epoch 1 and its only follower, which has all records. Each Fetch of the follower shows that it knows
    no other leader."""

    def __init__(self, log: Partition, clock: Clock) -> None:
        self.log = log
        self._clock = clock

    async def fetch(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        follower_fetches(self.log, self._clock, 2)

    def give_up(self) -> None:
        """Let the follower stop fetching, because it knows another leader."""
        self._clock.now_ms += RECENT_MS
        self._clock.reads.expire(self._clock.now_ms)

    async def refused(self, pending: PendingAppend, *, is_over: bool) -> object:
        """The error that the producer gets. `is_over`: the follower has another leader, so nothing confirms the
        error."""
        await trio.testing.wait_all_tasks_blocked()
        assert not pending.is_settled, "a successor may have been elected"
        if is_over:
            self.give_up()
        else:
            await self.fetch()
        return await outcome_of(pending)

    async def taken(self, pending: PendingAppend) -> int:
        await self.fetch()
        return (await pending.wait()).base_offset

    def plain(self, epoch: int, sequence: int) -> PendingAppend:
        records = build_batch([Record(b"k", b"v", NOW_MS)], producer=(7, epoch, sequence))
        return self.log.append(memoryview(records), acks=-1)

    def end(self, epoch: int = 0, coordinator_epoch: int = 0) -> PendingAppend:
        return self.log.end_transaction(Marker(7, epoch, coordinator_epoch, Outcome.ABORT, FIRST_PROTOCOL))

    async def begin(self) -> Asked:
        """Begin a transaction of producer 7, with sequence 0."""
        asked = Asked(FIRST_PROTOCOL)
        pending = send(self.log, asked, (7, 0, 0))
        asked.futures[0].settle()
        await self.taken(pending)
        return asked


@asynccontextmanager
async def followed() -> AsyncIterator[Followed]:
    clock = Clock()
    async with running(SimulatedFileSystem()) as store:
        log = await leading(store, others(1, 2)._replace(confirming=clock.confirming()), epoch=1)
        yield Followed(log, clock)


@pytest.mark.parametrize("is_over", [False, True])
async def test_the_end_that_a_successor_wrote_before_refuses_nothing_of_the_next_transaction(*, is_over: bool) -> None:
    """A leader does not refuse a batch of the next transaction because of a marker that its successor already has.

    The marker was on its way when the leader was paused. The coordinator sent it to the successor, which ended the
    transaction. The producer began the next one, and still sent to the old leader. There the old transaction is open,
    so its batch needs no verification; then the old marker arrives.
    """
    async with followed() as leader:
        asked = await leader.begin()
        ending, following = leader.end(), send(leader.log, asked, (7, 0, 1))
        outcomes = await leader.refused(following, is_over=is_over)
        assert isinstance(outcomes, NotLeaderOrFollower if is_over else InvalidTxnState)
        assert len(asked.futures) == 1
        await leader.taken(ending)
        again = send(leader.log, asked, (7, 0, 1))
        asked.futures[1].settle()
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
async def test_a_leader_refuses_an_append_by_its_log_only_after_its_leadership_is_confirmed(
    refused: Callable[[Followed], PendingAppend], error: type[EngineError], *, is_over: bool
) -> None:
    async with followed() as leader:
        await leader.taken(leader.end(1, coordinator_epoch=3))
        await leader.taken(leader.plain(1, 0))
        outcome = await leader.refused(refused(leader), is_over=is_over)
        assert isinstance(outcome, NotLeaderOrFollower if is_over else error)


async def test_a_batch_behind_a_refused_first_batch_is_refused_as_out_of_order() -> None:
    """Otherwise the next batch would count as the first one of its producer (KAFKA-14359)."""
    async with followed() as leader:
        asked = Asked(FIRST_PROTOCOL)
        first = send(leader.log, asked, (7, 0, 0))
        ending = leader.end()
        await trio.testing.wait_all_tasks_blocked()
        leader.log.log.producers.expire(2**62)
        asked.futures[0].settle()
        assert isinstance(await leader.refused(first, is_over=True), NotLeaderOrFollower)
        await leader.taken(ending)
        second = send(leader.log, asked, (7, 0, 1))
        asked.futures[1].settle()
        assert isinstance(await leader.refused(second, is_over=False), OutOfOrderSequence)


async def test_a_refusal_that_is_confirmed_holds_up_nothing_behind_it() -> None:
    """The client gives that batch up, and does not send it again."""
    async with followed() as leader:
        asked = Asked(FIRST_PROTOCOL)
        first = send(leader.log, asked, (7, 0, 0))
        ending = leader.end()
        await trio.testing.wait_all_tasks_blocked()
        leader.log.log.producers.expire(2**62)
        asked.futures[0].settle()
        assert isinstance(await leader.refused(first, is_over=False), InvalidTxnState)
        await leader.taken(ending)
        second = send(leader.log, asked, (7, 0, 1))
        asked.futures[1].settle()
        assert await leader.taken(second) == 1


async def test_a_duplicate_needs_no_confirmation() -> None:
    """A successor has all records that all replicas in sync have."""
    async with followed() as leader:
        await leader.taken(leader.plain(0, 0))
        leader.give_up()
        assert await outcome_of(leader.plain(0, 0)) == 0


async def test_an_unconfirmed_leader_raises_not_leader_for_a_read_behind_its_end() -> None:
    """A consumer that has read on in the log of a successor would reset its offset."""
    async with followed() as leader:
        await leader.taken(leader.plain(0, 0))
        log = leader.log

        async def is_told(error: type[EngineError], offset: int) -> None:
            with pytest.raises(error):
                log.read(offset, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
            with pytest.raises(error):
                await log.load(offset, 1000)

        await is_told(OffsetOutOfRange, 2)
        leader.give_up()
        await is_told(NotLeaderOrFollower, 2)
        await is_told(OffsetOutOfRange, -1)
        await leader.fetch()
        await is_told(OffsetOutOfRange, 2)
