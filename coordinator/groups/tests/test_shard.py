"""A shard shows no state before it is durable, and after a failure it has exactly the durable state."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import CoordinatorLoading, GroupError, NotCoordinator, RebalanceInProgress, UnknownMember
from coordinator.groups.api import Claim, CommittedOffset, Join, Joined, MemberProtocol, OffsetToCommit
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.service import Table
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.groups.tests.answers import result_of
from coordinator.shards.shard import RELOAD_PAUSE_S, ReplyFuture, Shard, ShardDeps
from coordinator.shards.writer import BatchWriter, CacheMode
from coordinator.state.cache import PartitionChange, StateCache
from coordinator.testing.fakes import FakeStateLog, SimulatedStateCaches

NO_MEMBER = Claim("")


@dataclass
class Bench:
    """A shard on a log and a cache of the test's own."""

    log: FakeStateLog = field(default_factory=FakeStateLog)
    caches: SimulatedStateCaches = field(default_factory=SimulatedStateCaches)
    mode: CacheMode = CacheMode.CACHED
    ids: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)

    async def cache(self) -> StateCache:
        return await self.caches.open(Path("view"))

    async def saved_to(self) -> int:
        """The offset up to which the cache goes, or -1."""
        loaded = await (await self.cache()).load(7)
        return -1 if loaded is None else loaded[0].next_offset

    async def save(self, shard: Shard[Table]) -> None:
        """Save the changes, as the service does now and then."""
        change = shard.take_unsaved()
        assert change is not None
        await (await self.cache()).save([change])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Shard[Table]]:
        cache = await self.cache()
        writer = BatchWriter(cache, self.mode)
        world: ShardDeps[Table] = ShardDeps(
            logs=self.log,
            cache=cache,
            writer=writer,
            on_unsaved=lambda: None,
            new_table=lambda: GroupTable(GroupSettings(initial_rebalance_delay_ms=0), OffsetSettings()),
            wall_ms=lambda: 1_000 + int(trio.current_time() * 1000),
            new_id=lambda: str(self.ids()),
        )
        shard = Shard(self.log.topic_id, "__consumer_offsets", 7, self.log.leader_epoch, world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            nursery.start_soon(shard.run)
            await wait_all_tasks_blocked()
            yield shard
            nursery.cancel_scope.cancel()


def commit(shard: Shard[Table], offset: int, claim: Claim = NO_MEMBER, group: str = "g") -> ReplyFuture:
    offsets = [OffsetToCommit("t", 0, offset, -1, "")]
    return shard.ask(lambda table, moment, future: table.offsets.commit(moment, group, claim, offsets, -1, future))


def fetch(shard: Shard[Table], group: str = "g") -> ReplyFuture:
    return shard.ask(lambda table, _, future: table.offsets.fetch_offsets(group, [("t", [0])], future))


def join(shard: Shard[Table], member_id: str = "") -> ReplyFuture:
    asked = Join(member_id, None, "c", "/h", "consumer", (MemberProtocol("range", b"\0\0\0\0\0\0"),), 10_000, 60_000)
    return shard.ask(lambda table, moment, future: table.join(moment, "g", asked, future))


def sync(shard: Shard[Table], joined: Joined) -> ReplyFuture:
    claim = Claim(joined.member_id, None, joined.generation_id)
    assignments = {joined.member_id: b"all"}
    return shard.ask(lambda table, moment, future: table.sync(moment, "g", claim, (None, None), assignments, future))


def offset_of(future: ReplyFuture) -> int | None:
    answer = future.result()
    assert isinstance(answer, list)
    (found,) = answer
    assert found is None or isinstance(found, CommittedOffset)
    return None if found is None else found.offset


def error_of(future: ReplyFuture) -> type[GroupError]:
    with pytest.raises(GroupError) as caught:
        future.result()
    return caught.type


async def settled_member(shard: Shard[Table]) -> Joined:
    joining = join(shard)
    await wait_all_tasks_blocked()
    joined = joining.result()
    assert isinstance(joined, Joined)
    syncing = sync(shard, joined)
    await wait_all_tasks_blocked()
    syncing.result()
    return joined


async def test_a_commit_is_answered_when_it_is_durable() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        committing = commit(shard, 5)
        await wait_all_tasks_blocked()
        assert not committing.is_settled
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert committing.result() == [None]


async def test_a_read_that_saw_a_commit_waits_for_it() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        commit(shard, 5)
        reading, other = fetch(shard), fetch(shard, "another group")
        await wait_all_tasks_blocked()
        assert not reading.is_settled
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert offset_of(reading) == 5
        assert offset_of(other) is None


async def test_a_description_of_a_group_waits_while_the_deletion_is_not_durable() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 5))
        bench.log.is_slow = True
        shard.ask(lambda table, _, future: table.delete_group("g", future))
        describing = shard.ask(lambda table, _, future: table.describe("g", future))
        await wait_all_tasks_blocked()
        assert not describing.is_settled


async def test_a_group_created_after_a_deletion_answers_no_fetch_before_the_deletion_is_durable() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 5))
        bench.log.is_slow = True
        deleted = shard.ask(lambda table, _, future: table.delete_group("g", future))
        join(shard)
        found = fetch(shard)
        await wait_all_tasks_blocked()
        assert (deleted.is_settled, found.is_settled) == (False, False)
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert deleted.result() is None
        assert offset_of(found) is None


async def test_commits_that_arrive_while_a_batch_is_in_flight_become_one_batch() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        commit(shard, 1)
        await wait_all_tasks_blocked()
        later = [commit(shard, offset) for offset in range(2, 12)]
        await wait_all_tasks_blocked()
        assert len(bench.log.batches) == 1
        bench.log.sync()
        await wait_all_tasks_blocked()
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert [len(batch.records) for batch in bench.log.batches] == [1, 10]
        assert all(one.result() == [None] for one in later)


async def test_commits_are_split_into_batches_of_the_size_that_the_log_takes() -> None:
    bench = Bench()
    bench.log.batch_size_max_bytes = 300
    async with bench.running() as shard:
        many = [commit(shard, offset) for offset in range(10)]
        await wait_all_tasks_blocked()
        assert all(one.is_settled for one in many)
    assert len(bench.log.records) == 10
    for batch in bench.log.batches:
        assert sum(map(bench.log.size_of, batch.records)) + bench.log.batch_overhead_bytes <= 300


async def test_a_failed_log_drops_everything_and_is_read_anew() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        bench.log.is_slow = True
        lost, reading, queued = commit(shard, 2), fetch(shard), None
        await wait_all_tasks_blocked()
        queued = commit(shard, 3)
        bench.log.is_slow = False
        bench.log.fail()
        await wait_all_tasks_blocked()
        assert [error_of(one) for one in (lost, reading, queued)] == [NotCoordinator] * 3
        assert error_of(commit(shard, 4)) is CoordinatorLoading
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert offset_of(fetch(shard)) == 1


async def test_waiting_members_get_not_coordinator_when_the_log_fails() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await settled_member(shard)
        joining = join(shard)  # the first member has to come back first
        bench.log.is_broken = True
        commit(shard, 1, group="another")
        await wait_all_tasks_blocked()
        assert error_of(joining) is NotCoordinator


@pytest.mark.parametrize("mode", CacheMode)
async def test_records_that_another_writer_appended_are_read_at_a_reload(mode: CacheMode) -> None:
    bench = Bench(mode=mode)
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        bench.log.append([bench.log.records[0]._replace(value=None)], 0)
        assert await result_of(commit(shard, 2, group="another")) == [None]
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert offset_of(fetch(shard)) is None
        assert offset_of(fetch(shard, "another")) == 2


async def test_a_log_that_cannot_be_read_is_tried_again() -> None:
    bench = Bench()
    bench.log.is_broken = True
    async with bench.running() as shard:
        assert error_of(commit(shard, 1)) is CoordinatorLoading
        bench.log.is_broken = False
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert (await result_of(commit(shard, 1))) == [None]


async def test_groups_and_offsets_outlive_the_shard() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
        claim = Claim(joined.member_id, None, joined.generation_id)
        await result_of(commit(shard, 9, claim))
    async with bench.running() as shard:
        assert offset_of(fetch(shard)) == 9
        assert (await result_of(commit(shard, 10, claim))) == [None]
        stale = Claim(joined.member_id, None, joined.generation_id - 1)
        assert error_of(commit(shard, 11, stale)).__name__ == "IllegalGeneration"
        beat = shard.ask(lambda table, moment, future: table.heartbeat(moment, "g", claim, future))
        assert beat.result() is None


async def test_a_restored_member_has_a_session_to_come_back() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
    claim = Claim(joined.member_id, None, joined.generation_id)
    await trio.sleep(3_600)
    async with bench.running() as shard:
        await trio.sleep(9.9)
        assert shard.ask(lambda table, moment, future: table.heartbeat(moment, "g", claim, future)).result() is None
        await trio.sleep(10.1)
        assert error_of(commit(shard, 1, claim)) is UnknownMember


async def test_time_runs_without_anybody_asking() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await settled_member(shard)
        joining = join(shard)
        assert not joining.is_settled
        await trio.sleep(10.1)  # the first member's session is over, the second is alone
        assert isinstance(joining.result(), Joined)
        assert shard.table.counters.expired_members == 1


async def test_time_that_no_float_gives_exactly_comes() -> None:
    session_ends_s = 16.002
    assert int(session_ends_s * 1000) < 16_002
    bench = Bench()
    async with bench.running() as shard:
        await trio.sleep_until(session_ends_s - 10)
        joined = await settled_member(shard)
        with trio.fail_after(20):
            await trio.sleep_until(session_ends_s + 0.1)
        heartbeat = shard.ask(
            lambda table, moment, future: table.heartbeat(moment, "g", Claim(joined.member_id, None, 1), future)
        )
        assert error_of(heartbeat) is UnknownMember


async def test_a_replaced_request_is_answered() -> None:
    bench = Bench()
    async with bench.running() as shard:
        joined = await settled_member(shard)
        second = join(shard)
        first = join(shard, joined.member_id)
        await wait_all_tasks_blocked()
        assert isinstance(first.result(), Joined)
        assert isinstance(second.result(), Joined)
        third = join(shard)
        again = join(shard, joined.member_id)
        assert join(shard, joined.member_id) is not again
        assert error_of(again) is RebalanceInProgress
        assert not third.is_settled


async def test_the_cache_has_the_durable_records_and_the_next_load_reads_only_the_rest() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(commit(shard, 2))
        await bench.save(shard)
        await result_of(commit(shard, 3))
    assert await bench.saved_to() == 2
    bench.log.reads.clear()
    async with bench.running() as shard:
        assert offset_of(fetch(shard)) == 3
    assert bench.log.reads == [2]


async def test_in_direct_mode_the_view_is_written_before_the_answer() -> None:
    bench = Bench(mode=CacheMode.DIRECT)
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        assert await bench.saved_to() == 1
        await result_of(commit(shard, 2))
        assert await bench.saved_to() == 2


async def test_the_cache_never_takes_records_that_are_not_durable() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        commit(shard, 1)
        await wait_all_tasks_blocked()
        assert shard.take_unsaved() is None
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert shard.take_unsaved() is not None


@pytest.mark.parametrize("change", ["another topic", "another epoch", "a shorter log", "records deleted"])
async def test_a_view_that_is_not_of_this_log_is_discarded(change: str) -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(commit(shard, 2))
        await bench.save(shard)
    cache = await bench.cache()
    loaded = await cache.load(7)
    assert loaded is not None
    checkpoint, records = loaded
    wrong = {
        "another topic": checkpoint._replace(topic_id=bytes(16)),
        "another epoch": checkpoint._replace(leader_epoch=5),
        "a shorter log": checkpoint._replace(next_offset=3),
        "records deleted": checkpoint._replace(replay_offset=-1),
    }[change]
    await cache.save([PartitionChange(7, wrong, {one.key: b"wrong" for one in records})])
    async with bench.running() as shard:
        assert offset_of(fetch(shard)) == 2
        assert await bench.saved_to() == -1


async def test_records_of_a_newer_broker_are_left_out() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
    first = bench.log.batches[0].records[0]
    bench.log.append([first._replace(key=b"\0\x63???"), first._replace(value=b"\0\x63???")], 0)
    async with bench.running() as shard:
        assert offset_of(fetch(shard)) == 1


async def test_a_stopping_shard_refuses_requests_and_finishes_the_batch_in_flight() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await settled_member(shard)
        joining = join(shard)
        bench.log.is_slow = True
        committing = commit(shard, 1, group="another")
        await wait_all_tasks_blocked()
        shard.stop()
        assert error_of(joining) is NotCoordinator
        assert error_of(commit(shard, 2)) is NotCoordinator
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert committing.result() == [None]


async def test_a_stale_leader_acknowledges_commits_and_refuses_everything_else() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        bench.log.is_confirmed = False
        assert error_of(fetch(shard)) is NotCoordinator
        assert await result_of(commit(shard, 2)) == [None], "all in sync have it"
        stale = commit(shard, 3, Claim("gone", None, 5))
        assert error_of(stale) is NotCoordinator, "the member may be known by now"
        bench.log.is_confirmed = True
        assert offset_of(fetch(shard)) == 2


async def test_a_read_of_a_commit_in_flight_is_refused_if_the_leader_becomes_stale() -> None:
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        committing, reading = commit(shard, 1), fetch(shard)
        await wait_all_tasks_blocked()
        bench.log.is_confirmed = False
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert committing.result() == [None]
        assert error_of(reading) is NotCoordinator
