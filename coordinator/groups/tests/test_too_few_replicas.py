"""A shard answers reads while too few replicas are in sync; no state changes, none is dropped (RULES K26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import CoordinatorNotAvailable, UnknownMember
from coordinator.groups.api import Claim, GroupState, Join, Joined, MemberProtocol
from coordinator.groups.commands import JoinGroup
from coordinator.groups.tests.answers import result_of
from coordinator.groups.tests.test_service import commit as commit_to
from coordinator.groups.tests.test_service import coordinating, offset, topic
from coordinator.groups.tests.test_shard import Bench, commit, error_of, join, offset_of, settled_member
from coordinator.shards.shard import RETRY_MS
from coordinator.testing.fakes import FakeStateLog

if TYPE_CHECKING:
    from coordinator.groups.service import Table
    from coordinator.shards.shard import ReplyFuture, Shard

SESSION_S = 10.0  # of `settled_member`
TIMEOUT_S = 5.0


def fetch(shard: Shard[Table]) -> ReplyFuture:
    return shard.ask(lambda table, _, future: table.offsets.fetch_offsets("g", [("t", [0])], future), only_reads=True)


def beat(shard: Shard[Table], joined: Joined) -> ReplyFuture:
    claim = Claim(joined.member_id, None, joined.generation_id)
    return shard.ask(lambda table, moment, future: table.heartbeat(moment, "g", claim, future), only_reads=True)


class CountingLog(FakeStateLog):
    """A log that counts how often it is asked whether it takes writes."""

    times_asked = 0
    _takes_writes = True

    @property
    def takes_writes(self) -> bool:
        self.times_asked += 1
        return self._takes_writes

    @takes_writes.setter
    def takes_writes(self, takes_writes: bool) -> None:
        self._takes_writes = takes_writes


async def test_writes_are_refused_before_the_table_changes_and_reads_are_answered() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
        await result_of(commit(shard, 1, Claim(joined.member_id, None, joined.generation_id)))
        table, reads = shard.table, list(bench.log.reads)
        bench.log.takes_writes = False
        assert [error_of(one) for one in (commit(shard, 2), join(shard))] == [CoordinatorNotAvailable] * 2
        await wait_all_tasks_blocked()
        assert offset_of(fetch(shard)) == 1
        assert beat(shard, joined).result() is None
        bench.log.takes_writes = True
        assert await result_of(commit(shard, 3, Claim(joined.member_id, None, joined.generation_id))) == [None]
        assert shard.table is table, "nothing was dropped"
        assert bench.log.reads == reads


async def test_time_stands_still_for_members_while_nothing_can_be_written() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
        bench.log.takes_writes = False
        await trio.sleep(10 * SESSION_S)
        assert beat(shard, joined).result() is None
        bench.log.takes_writes = True
        await trio.sleep(SESSION_S - 1)
        assert beat(shard, joined).result() is None
        await trio.sleep(2 * SESSION_S)
        assert error_of(beat(shard, joined)) is UnknownMember


async def test_a_late_member_is_removed_soon_after_writes_resume_without_busy_polling_before() -> None:
    log = CountingLog()
    bench = Bench(log=log)
    async with bench.running() as shard:
        joined = await settled_member(shard)
        log.takes_writes = False
        await trio.sleep(SESSION_S + 1)
        asked_before = log.times_asked
        await trio.sleep(60)
        assert log.times_asked - asked_before <= 60_000 // RETRY_MS + 1
        log.takes_writes = True
        await trio.sleep(RETRY_MS / 1000 + 0.1)
        assert error_of(beat(shard, joined)) is UnknownMember


async def test_queued_commits_are_written_when_enough_replicas_are_in_sync_again() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        first = commit(shard, 1)
        await wait_all_tasks_blocked()
        second, table = commit(shard, 2), shard.table
        bench.log.takes_writes = False
        await trio.sleep(1)
        assert (first.is_settled, second.is_settled) == (False, False)
        bench.log.sync()
        await trio.sleep(1)
        assert first.result() == [None]
        assert not second.is_settled
        bench.log.takes_writes, bench.log.is_slow = True, False
        await trio.sleep(1)
        assert second.result() == [None]
        assert offset_of(fetch(shard)) == 2
        assert shard.table is table


async def test_waiting_requests_fail_with_not_available_after_the_timeout() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
        parked = join(shard)  # until the first member comes back
        bench.log.is_slow = True
        on_its_way = commit(shard, 1, group="other")
        await wait_all_tasks_blocked()
        gathered = commit(shard, 2, group="other")
        bench.log.takes_writes = False
        shard.refuse_late(TIMEOUT_S)
        await trio.sleep(TIMEOUT_S)
        assert not on_its_way.is_settled
        shard.refuse_late(TIMEOUT_S)
        assert [error_of(one) for one in (on_its_way, gathered, parked)] == [CoordinatorNotAvailable] * 3
        bench.log.takes_writes, bench.log.is_slow = True, False
        bench.log.sync()
        await trio.sleep(1)
        reading = shard.ask(lambda table, _, future: table.offsets.fetch_offsets("other", [("t", [0])], future))
        assert offset_of(reading) == 2, "an answer that it is not available says nothing of what becomes of it"
        assert error_of(beat(shard, joined)).__name__ == "RebalanceInProgress"


async def test_a_commit_that_does_not_become_durable_fails_within_its_timeout() -> None:
    async with coordinating(commit_timeout_ms=2_000) as world:
        world.cluster.publish(topic("__consumer_offsets"))
        await wait_all_tasks_blocked()
        for log in world.logs.logs.values():
            log.is_slow = True
        started_s = trio.current_time()
        with pytest.raises(CoordinatorNotAvailable):
            await result_of(commit_to(world))
        assert 2 <= trio.current_time() - started_s <= 3


async def test_offsets_of_a_deleted_topic_are_removed_when_writes_are_possible_again() -> None:
    async with coordinating() as world:
        orders = topic("t")
        world.cluster.publish(topic("__consumer_offsets"), orders)
        await wait_all_tasks_blocked()
        await result_of(commit_to(world))
        for log in world.logs.logs.values():
            log.takes_writes = False
        world.cluster.publish(removed=(orders,))
        await trio.sleep(10)
        assert await offset(world) == 5
        for log in world.logs.logs.values():
            log.takes_writes = True
        await trio.sleep(1)
        assert await offset(world) is None
        assert (await result_of(world.groups.list_groups()))[0].state is GroupState.EMPTY


async def test_groups_of_which_others_may_know_more_are_not_listed() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic("__consumer_offsets"))
        await wait_all_tasks_blocked()
        await result_of(commit_to(world))
        next(iter(world.logs.logs.values())).is_current = False
        with pytest.raises(CoordinatorNotAvailable):
            await result_of(world.groups.list_groups())


async def test_a_group_is_joined_though_no_follower_confirms_its_coordinator() -> None:
    """The reply comes when the rebalance is over, by a timer; as by Kafka it may be stale (RULES K24)."""
    async with coordinating() as world:
        world.cluster.publish(topic("__consumer_offsets"))
        await wait_all_tasks_blocked()
        for log in world.logs.logs.values():
            log.is_confirmed = False
        asked = Join("", None, "c", "/h", "consumer", (MemberProtocol("range", b""),), 10_000, 60_000)
        joined = await result_of(world.groups.ask(JoinGroup("g", asked)))
        assert joined.generation_id == 1
