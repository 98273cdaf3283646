"""A shard that was read beyond the high watermark answers only reads until the high watermark has passed that (RULES
K26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, UnknownMember
from coordinator.groups.api import Claim, GroupState
from coordinator.groups.commands import DescribeGroup
from coordinator.groups.records import GroupKey, encode_key
from coordinator.groups.tests.answers import result_of
from coordinator.groups.tests.test_loading import group_record, offset_record
from coordinator.groups.tests.test_service import commit as commit_to
from coordinator.groups.tests.test_service import coordinating, topic
from coordinator.groups.tests.test_shard import Bench, commit, error_of, join, offset_of, settled_member
from coordinator.groups.tests.test_too_few_replicas import SESSION_S, TIMEOUT_S, beat, fetch
from coordinator.shards.replies import Freshness
from coordinator.shards.shard import RETRY_MS
from coordinator.state.log import StateProducer, StateRecord
from coordinator.testing.fakes import FakeStateLog

if TYPE_CHECKING:
    from coordinator.groups.service import Table
    from coordinator.shards.shard import ReplyFuture, Shard

RETRY_S = RETRY_MS / 1000 + 0.1


def beyond(*records: StateRecord) -> FakeStateLog:
    """A log that was taken over with these batches beyond the high watermark, and too few replicas in sync."""
    log = FakeStateLog()
    log.append([offset_record("g", 0, 1)], 0)
    log.is_slow = True
    for one in records or [offset_record("g", 0, 2)]:
        log.append([one], 0)
    log.takes_writes = log.is_confirmed = False
    return log


def replicated(log: FakeStateLog) -> None:
    """The ISR is full again, and the high watermark at the end."""
    log.takes_writes, log.is_confirmed, log.is_slow = True, True, False
    log.sync()


def fetched(shard: Shard[Table], *, require_stable: bool = False) -> ReplyFuture:
    return shard.ask(
        lambda table, _, future: table.offsets.fetch_offsets("g", [("t", [0])], future, require_stable=require_stable),
        only_reads=True,
        freshness=Freshness.NEWEST if require_stable else Freshness.MAY_FALL_BACK,
    )


async def test_a_shard_loads_beyond_the_high_watermark_and_answers_only_reads() -> None:
    bench = Bench(log=beyond())
    async with bench.running() as shard:
        assert shard.is_loaded
        assert offset_of(fetched(shard)) == 2
        assert error_of(fetched(shard, require_stable=True)) is CoordinatorLoading
        assert [error_of(one) for one in (commit(shard, 3), join(shard))] == [CoordinatorNotAvailable] * 2
        await trio.sleep(60)
        assert offset_of(fetched(shard)) == 2


async def test_the_shard_goes_on_without_being_read_again_when_the_isr_is_full() -> None:
    bench = Bench(log=beyond())
    async with bench.running() as shard:
        table, reads = shard.table, list(bench.log.reads)
        replicated(bench.log)
        await trio.sleep(RETRY_S)
        assert await result_of(commit(shard, 3)) == [None]
        assert offset_of(fetched(shard, require_stable=True)) == 3
        assert (shard.table is table, bench.log.reads) == (True, reads)


async def test_enough_replicas_do_not_suffice_while_the_high_watermark_is_behind() -> None:
    bench = Bench(log=beyond(offset_record("g", 0, 2), offset_record("g", 0, 3)))
    async with bench.running() as shard:
        bench.log.takes_writes = True
        bench.log.batches[1].settle()  # the first of two
        await trio.sleep(10 * RETRY_S)
        assert error_of(commit(shard, 4)) is CoordinatorNotAvailable
        assert error_of(fetched(shard, require_stable=True)) is CoordinatorLoading
        replicated(bench.log)
        await trio.sleep(RETRY_S)
        assert await result_of(commit(shard, 4)) == [None]


async def test_nothing_is_saved_before_the_high_watermark_has_passed_it() -> None:
    bench = Bench(log=beyond())
    async with bench.running() as shard:
        assert shard.take_unsaved() is None
        await trio.sleep(60)
        assert shard.take_unsaved() is None
        replicated(bench.log)
        await trio.sleep(RETRY_S)
        change = shard.take_unsaved()
        assert change is not None
        assert change.checkpoint.next_offset == bench.log.end_offset == 2


async def test_a_commit_that_was_truncated_is_unknown_to_the_next_shard() -> None:
    bench = Bench(log=beyond())
    async with bench.running() as shard:
        assert offset_of(fetched(shard)) == 2
    assert await bench.saved_to() == -1
    bench.log.fail()
    bench.log.leader_epoch = 2
    replicated(bench.log)
    async with bench.running() as shard:
        assert offset_of(fetched(shard)) == 1


async def test_no_session_runs_out_and_each_member_has_a_whole_one_afterwards() -> None:
    log = FakeStateLog()
    bench = Bench(log=log)
    async with bench.running() as shard:
        joined = await settled_member(shard)
    log.is_slow = True
    log.append([offset_record("g", 0, 2)], 0)
    log.takes_writes = log.is_confirmed = False
    async with bench.running() as shard:
        alive = Claim(joined.member_id, None, joined.generation_id)
        for _ in range(3):
            await trio.sleep(10 * SESSION_S)
            beating = shard.ask(
                lambda table, moment, future: table.heartbeat(moment, "g", alive, future),
                only_reads=True,
                freshness=Freshness.MAY_FALL_BACK,
            )
            assert beating.result() is None
        replicated(log)
        await trio.sleep(SESSION_S - 1)
        assert beat(shard, joined).result() is None
        await trio.sleep(2 * SESSION_S)
        assert error_of(beat(shard, joined)) is UnknownMember


async def test_a_shard_that_answers_only_reads_hides_pending_offsets_and_writes_nothing() -> None:
    log = beyond()
    log.takes_writes = True
    log.append([offset_record("g", 0, 9)], 0, StateProducer(1, 0))
    log.takes_writes = False
    async with Bench(log=log).running() as shard:
        appended = len(log.batches)
        assert offset_of(fetched(shard)) == 2
        await trio.sleep(60)
        assert len(log.batches) == appended
        assert error_of(fetched(shard, require_stable=True)) is CoordinatorLoading


async def test_a_leader_that_has_been_cut_off_for_long_answers_no_read() -> None:
    bench = Bench(log=beyond())
    async with bench.running() as shard:
        bench.log.is_current = False
        assert error_of(fetched(shard)) is NotCoordinator
        bench.log.is_current = True
        assert offset_of(fetched(shard)) == 2


async def test_a_deleted_group_is_not_shown() -> None:
    deletion = [StateRecord(encode_key(GroupKey("h")), None), offset_record("h", 0, None)]
    log = beyond(group_record("h", 3), offset_record("h", 0, 5), *deletion)
    async with Bench(log=log).running() as shard:
        assert [one.group_id for one in shard.table.listings()] == ["g"]


async def test_a_commit_in_flight_is_visible_to_fallback_reads_with_too_few_replicas() -> None:
    """A leader that stays tells as much as a successor would."""
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        on_its_way = commit(shard, 1)
        await wait_all_tasks_blocked()
        bench.log.takes_writes = bench.log.is_confirmed = False
        waiting = fetch(shard)
        assert offset_of(fetched(shard)) == 1
        assert not waiting.is_settled
        shard.refuse_late(TIMEOUT_S)
        await trio.sleep(TIMEOUT_S)
        shard.refuse_late(TIMEOUT_S)
        assert error_of(on_its_way) is CoordinatorNotAvailable
        assert waiting.is_settled


async def test_groups_are_listed_and_described_by_the_last_replica() -> None:
    async with coordinating() as world:
        world.cluster.publish(topic("__consumer_offsets"))
        await wait_all_tasks_blocked()
        await result_of(commit_to(world))
        for log in world.logs.logs.values():
            log.takes_writes = log.is_confirmed = False
        (listed,) = await result_of(world.groups.list_groups())
        assert listed.state is GroupState.EMPTY
        assert (await result_of(world.groups.ask(DescribeGroup(listed.group_id)))).state is GroupState.EMPTY
