"""The writer for all partitions: many cost no more turns of the loop than one, and a failure concerns one alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import CoordinatorLoading, GroupError, NotCoordinator
from coordinator.groups.api import Claim, CommittedOffset, OffsetToCommit
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.service import Table
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.shards.shard import RELOAD_PAUSE_S, ReplyFuture, Shard, ShardDeps
from coordinator.shards.writer import BatchWriter, CacheMode
from coordinator.testing.fakes import FakeStateLog, SimulatedStateCaches


class Logs(list[FakeStateLog]):
    """State logs, one for each partition, whose disk has room at once as the engine mostly has."""

    async def get(self, topic_id: bytes, topic: str, partition: int) -> FakeStateLog:
        return await self[partition].get(topic_id, topic, partition)


class RoomyLog(FakeStateLog):
    async def wait_for_room(self) -> None:
        pass


@dataclass(eq=False)
class Steps(trio.abc.Instrument):
    """A count of the steps of tasks."""

    count: int = 0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self.count += 1


@asynccontextmanager
async def running(
    count: int, mode: CacheMode = CacheMode.CACHED
) -> AsyncIterator[tuple[list[Shard[Table]], Logs, SimulatedStateCaches]]:
    logs, caches, ids = Logs(RoomyLog() for _ in range(count)), SimulatedStateCaches(), itertools.count()
    cache = await caches.open(Path("view"))
    writer = BatchWriter(cache, mode)
    world: ShardDeps[Table] = ShardDeps(
        logs=logs,
        cache=cache,
        writer=writer,
        on_unsaved=lambda: None,
        new_table=lambda: GroupTable(GroupSettings(), OffsetSettings()),
        wall_ms=lambda: round(trio.current_time() * 1000),
        new_id=lambda: str(next(ids)),
    )
    shards = [Shard(log.topic_id, "__consumer_offsets", number, 0, world) for number, log in enumerate(logs)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for shard in shards:
            nursery.start_soon(shard.run)
        await wait_all_tasks_blocked()
        for log in logs:
            log.is_slow = True
        yield shards, logs, caches
        nursery.cancel_scope.cancel()


def commit(shard: Shard[Table], offset: int, group: str = "g") -> ReplyFuture:
    offsets = [OffsetToCommit("t", 0, offset, -1, "")]
    return shard.ask(lambda table, moment, future: table.offsets.commit(moment, group, Claim(""), offsets, -1, future))


def fetch(shard: Shard[Table], group: str = "g") -> ReplyFuture:
    return shard.ask(lambda table, _, future: table.offsets.fetch_offsets(group, [("t", [0])], future))


def offset_of(future: ReplyFuture) -> int:
    answer = future.result()
    assert isinstance(answer, list)
    found = answer[0]
    assert found is None or isinstance(found, CommittedOffset)
    return 0 if found is None else found.offset


def error_of(future: ReplyFuture) -> type[GroupError]:
    with pytest.raises(GroupError) as caught:
        future.result()
    return caught.type


async def steps_of_a_round(count: int) -> int:
    async with running(count) as (shards, logs, _):
        committing = [commit(shard, 1) for shard in shards]
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await wait_all_tasks_blocked()
        assert [len(log.batches) for log in logs] == [1] * count
        for log in logs:
            log.sync()
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(steps)
        assert [one.result() for one in committing] == [[None]] * count
        return steps.count


async def test_fifty_partitions_take_no_more_turns_than_one() -> None:
    assert await steps_of_a_round(50) == await steps_of_a_round(1)


@pytest.mark.parametrize("mode", CacheMode)
async def test_a_log_that_fails_affects_only_its_own_groups(mode: CacheMode) -> None:
    async with running(3, mode) as (shards, logs, _):
        committing = [commit(shard, 1) for shard in shards]
        await wait_all_tasks_blocked()
        logs[1].fail()
        for log in logs:
            log.sync()
        await wait_all_tasks_blocked()
        assert [committing[0].result(), error_of(committing[1]), committing[2].result()] == [
            [None],
            NotCoordinator,
            [None],
        ]
        assert error_of(commit(shards[1], 2)) is CoordinatorLoading
        later = commit(shards[2], 2)
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        logs[2].sync()
        await wait_all_tasks_blocked()
        assert later.result() == [None]
        assert offset_of(fetch(shards[1])) == 0


async def test_a_log_that_refuses_writes_does_not_stop_writes_to_other_logs() -> None:
    async with running(3) as (shards, logs, _):
        logs[0].is_broken = True
        committing = [commit(shard, 1) for shard in shards]
        await wait_all_tasks_blocked()
        assert error_of(committing[0]) is NotCoordinator
        assert [len(log.batches) for log in logs] == [0, 1, 1]


async def test_a_bug_in_one_group_stops_no_other() -> None:
    def explode() -> None:
        raise ValueError("planted")

    async with running(2) as (shards, logs, _):
        first, second = (commit(shard, 1) for shard in shards)
        first.call_when_settled(explode)
        await wait_all_tasks_blocked()
        for log in logs:
            log.sync()
        await wait_all_tasks_blocked()
        assert second.result() == [None]
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert offset_of(fetch(shards[0])) == 1, "it was durable"


async def test_in_direct_mode_one_save_is_of_all_that_became_durable_together() -> None:
    async with running(5, CacheMode.DIRECT) as (shards, logs, caches):
        committing = [commit(shard, 1) for shard in shards]
        await wait_all_tasks_blocked()
        for log in logs:
            log.sync()
        await wait_all_tasks_blocked()
        assert all(one.is_settled for one in committing)
        cache = await caches.open(Path("view"))
        for number in range(5):
            loaded = await cache.load(number)
            assert loaded is not None
            assert loaded[0].next_offset == 1


@pytest.mark.parametrize("seed", range(10))
async def test_c1_answers_show_only_durable_commits_and_no_commit_is_lost(seed: int) -> None:
    """Answers of a group come in the order of its commands; a read shows the commits before it, once they are
    durable."""
    rng = random.Random(seed)
    async with running(4) as (shards, logs, _):
        asked: list[list[tuple[int, ReplyFuture]]] = [[] for _ in shards]
        newest, confirmed = [0] * 4, [0] * 4
        for _ in range(300):
            number = rng.randrange(4)
            match rng.choice(["commit", "commit", "fetch", "sync", "turn", "fail"]):
                case "commit" if shards[number].is_loaded:
                    newest[number] += 1
                    asked[number].append((newest[number], commit(shards[number], newest[number])))
                case "fetch" if shards[number].is_loaded:
                    asked[number].append((newest[number], fetch(shards[number])))
                case "sync":
                    logs[number].sync()
                    await wait_all_tasks_blocked()
                case "fail" if rng.random() < 0.1:
                    logs[number].fail()
                    await trio.sleep(RELOAD_PAUSE_S + 0.1)
                    await wait_all_tasks_blocked()
                case _:
                    await wait_all_tasks_blocked()
            for number, log in enumerate(logs):
                durable = max((int.from_bytes((one.value or b"")[2:10]) for one in log.records), default=0)
                for expected, future in asked[number]:
                    if future.is_settled and not isinstance(future.outcome, GroupError):
                        assert expected <= durable
                        assert future.outcome == [None] or offset_of(future) == expected
                        confirmed[number] = max(confirmed[number], expected)
                assert confirmed[number] <= durable
                is_open = [not future.is_settled for _, future in asked[number]]
                assert is_open == sorted(is_open), "answered in order"
                if shards[number].is_loaded and all(future.is_settled for _, future in asked[number]):
                    asked[number] = []
                    newest[number] = offset_of(fetch(shards[number]))
        assert min(confirmed) > 3
