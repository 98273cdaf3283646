"""Requests that come while a partition is read wait a moment for it, and are answered in any case (RULES C7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import CoordinatorLoading, CoordinatorNotAvailable, GroupError, NotCoordinator
from coordinator.futures import SettableFuture
from coordinator.groups.api import OffsetToCommit
from coordinator.groups.commands import CommitOffsets
from coordinator.groups.service import OFFSETS_TOPIC
from coordinator.groups.tests.answers import result_of
from coordinator.groups.tests.test_loading import offset_record
from coordinator.groups.tests.test_service import coordinating, topic
from coordinator.groups.tests.test_shard import NO_MEMBER, Bench, commit, error_of, fetch, offset_of
from coordinator.shards import load_waiters
from coordinator.shards.load_waiters import EARLY_WAIT_S
from coordinator.shards.shard import RELOAD_PAUSE_S
from coordinator.state.log import StateLogMoved, StateMarker, StateProducer
from coordinator.testing.fakes import FakeStateLog

if TYPE_CHECKING:
    from coordinator.groups.service import Table
    from coordinator.shards.shard import ReplyFuture, Shard
    from coordinator.shards.table import Effects, Moment


class GatedLog(FakeStateLog):
    """A log that is read once `may_read` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = trio.Event()

    async def get(self, topic_id: bytes, topic: str, partition: int) -> FakeStateLog:
        await self.may_read.wait()
        return await super().get(topic_id, topic, partition)


def commit_early(shard: Shard[Table], offset: int) -> ReplyFuture:
    offsets = [OffsetToCommit("t", 0, offset, -1, "")]
    return shard.ask(
        lambda table, moment, future: table.offsets.commit(moment, "g", NO_MEMBER, offsets, -1, future), waits=True
    )


def fetch_early(shard: Shard[Table]) -> ReplyFuture:
    return shard.ask(
        lambda table, _, future: table.offsets.fetch_offsets("g", [("t", [0])], future), only_reads=True, waits=True
    )


async def gated() -> tuple[Bench, GatedLog]:
    """A bench whose log has one commit and waits to be read."""
    log = GatedLog()
    bench = Bench(log=log)
    log.may_read.set()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
    log.may_read = trio.Event()
    return bench, log


async def test_requests_that_arrive_during_a_load_are_answered_in_order_after_the_load() -> None:
    bench, log = await gated()
    async with bench.running() as shard:
        before, committing, after = fetch_early(shard), commit_early(shard, 2), fetch_early(shard)
        await trio.sleep(EARLY_WAIT_S - 0.1)
        assert not any(one.is_settled for one in (before, committing, after))
        log.may_read.set()
        assert await result_of(committing) == [None]
        assert [offset_of(one) for one in (before, after)] == [1, 2]


async def test_a_commit_that_waits_too_long_for_a_load_is_refused_and_never_applied() -> None:
    bench, log = await gated()
    async with bench.running() as shard:
        committing = commit_early(shard, 2)
        await trio.sleep(EARLY_WAIT_S / 2)
        later = fetch_early(shard)
        await trio.sleep(EARLY_WAIT_S / 2 + 0.001)
        assert error_of(committing) is CoordinatorLoading
        assert not later.is_settled
        log.may_read.set()
        await wait_all_tasks_blocked()
        assert offset_of(later) == 1
        assert offset_of(fetch(shard)) == 1, "nobody waits for that commit any more"


async def test_each_request_waits_the_full_time_before_it_is_refused_with_loading() -> None:
    bench, _ = await gated()
    async with bench.running() as shard:
        for _ in range(3):
            started_s = trio.current_time()
            with pytest.raises(CoordinatorLoading):
                await result_of(commit_early(shard, 2))
            assert trio.current_time() - started_s == pytest.approx(EARLY_WAIT_S)


async def test_there_are_not_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_waiters, "EARLY_MAX", 2)
    bench, log = await gated()
    async with bench.running() as shard:
        kept, one_more = [commit_early(shard, offset) for offset in (2, 3)], commit_early(shard, 4)
        assert error_of(one_more) is CoordinatorLoading
        log.may_read.set()
        await wait_all_tasks_blocked()
        assert [one.result() for one in kept] == [[None], [None]]
        assert offset_of(fetch(shard)) == 3


async def test_a_log_that_cannot_be_read_at_first_keeps_them() -> None:
    bench, log = await gated()
    log.is_broken = True
    log.may_read.set()
    async with bench.running() as shard:
        committing = commit_early(shard, 2)
        await wait_all_tasks_blocked()
        log.is_broken = False
        assert await result_of(committing) == [None]


async def test_a_stopping_shard_sends_them_away() -> None:
    bench, _ = await gated()
    async with bench.running() as shard:
        committing = commit_early(shard, 2)
        shard.stop()
        assert error_of(committing) is NotCoordinator
        assert error_of(commit_early(shard, 3)) is NotCoordinator


async def test_early_commits_are_refused_and_early_reads_answered_with_too_few_replicas() -> None:
    bench, log = await gated()
    log.takes_writes = False
    async with bench.running() as shard:
        committing, reading = commit_early(shard, 2), fetch_early(shard)
        log.may_read.set()
        await wait_all_tasks_blocked()
        assert error_of(committing) is CoordinatorNotAvailable
        assert offset_of(reading) == 1


async def test_a_bug_in_one_early_request_fails_no_other_request() -> None:
    bench, log = await gated()
    async with bench.running() as shard:

        def fail(table: Table, moment: Moment, future: ReplyFuture) -> Effects[ReplyFuture]:
            raise ZeroDivisionError

        failing, committing = shard.ask(fail, waits=True), commit_early(shard, 2)
        log.may_read.set()
        assert await result_of(committing) == [None]
        assert error_of(failing) is GroupError
        assert shard.is_loaded


async def test_a_load_that_fails_answers_no_request_and_the_next_load_does() -> None:
    """The read of the cache goes on if its caller is cancelled, and no other read follows if the log has nothing
    more."""
    bench, log = await gated()
    async with bench.running() as shard:
        reading = fetch_early(shard)
        shard.fail(StateLogMoved("another leads"))
        log.may_read.set()
        await wait_all_tasks_blocked()
        assert (shard.is_loaded, reading.is_settled) == (False, False)
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert offset_of(reading) == 1


@pytest.mark.parametrize("is_led_before", [False, True])
async def test_a_transactional_commit_that_came_during_a_load_is_refused(*, is_led_before: bool) -> None:
    """Simulation seeds 31301 and 31594: a marker of an earlier transaction had turned it into a fatal error."""
    async with coordinating() as world:
        at, producer = world.groups.partition_of("g"), StateProducer(5, 0)
        log = world.logs.logs[at] = GatedLog()
        log.append([offset_record("g", 0, 7)], 0, producer)
        log.end_transaction(StateMarker(*producer, 0, is_commit=True))
        if is_led_before:
            log.may_read.set()
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        allowed: SettableFuture[None] = SettableFuture()
        committing = world.groups.commit_in_transaction(
            "g", NO_MEMBER, *producer, [OffsetToCommit("t", 0, 1, -1, "")], allowed=allowed
        )
        log.may_read.set()
        await wait_all_tasks_blocked()
        allowed.settle(None)
        if is_led_before:
            assert await result_of(committing) == [None]
        else:
            with pytest.raises(CoordinatorLoading):
                await result_of(committing)


async def test_when_others_lead_they_look_there_at_once() -> None:
    async with coordinating() as world:
        world.logs.logs[world.groups.partition_of("g")] = GatedLog()
        world.cluster.publish(topic(OFFSETS_TOPIC))
        await wait_all_tasks_blocked()
        committing = world.groups.ask(CommitOffsets("g", NO_MEMBER, [OffsetToCommit("t", 0, 1, -1, "")]))
        assert not committing.is_settled
        started_s = trio.current_time()
        world.cluster.publish(topic(OFFSETS_TOPIC, leader=2, epoch=1))
        with pytest.raises(NotCoordinator):
            await result_of(committing)
        assert trio.current_time() == started_s
