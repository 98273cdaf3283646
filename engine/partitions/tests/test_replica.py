"""A leader and its followers over one partition: waits for the high watermark, and the limits of reads."""

import pytest
import trio
import trio.testing

from engine.api import Following, Isolation, Leadership
from engine.batches.batch import Record, build_batch, parse_header
from engine.errors import NotEnoughReplicas, NotLeaderOrFollower
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.replica_log import NEVER, FollowerFetchResult
from engine.replication.exchange import FollowerFetch, LeaderReply
from engine.replication.fetch_state import Append
from engine.roles import ReplicaSet
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, batch, bytes_of, read_all, running
from testkit.replicas import others

CONFIG = LogConfig()


async def leading(store: SegmentStore, known: ReplicaSet, epoch: int = 0) -> Partition:
    [log] = await store.open_partitions([Leadership(ORDERS, CONFIG, epoch, known)])
    assert isinstance(log, Partition)
    return log


def fetch(leader: Partition, replica: int, offset: int) -> FollowerFetchResult:
    """Let the leader receive a Fetch in leader epoch 0, from a follower with broker epoch 0."""
    return leader.followers.fetched(
        replica, 0, leader_epoch=0, offset=offset, last_epoch=0 if offset else -1, log_start_offset=0, as_of=NEVER
    )


async def test_an_acks_all_append_is_answered_by_the_fetch_that_completes_the_isr() -> None:
    async with running(SimulatedFileSystem()) as store:
        leader = await leading(store, others(1, 2, 3))
        pending = leader.append(memoryview(batch(b"x")), acks=-1)
        await leader.append(memoryview(batch(b"y")), acks=1).wait()
        assert not fetch(leader, 2, 2).has_moved
        settled: list[bool] = []
        pending.call_when_settled(lambda: settled.append(True))
        assert not settled
        assert fetch(leader, 3, 1).has_moved
        assert settled
        assert (leader.high_watermark, list(await read_all(leader))) == (1, [0])


async def test_followers_read_written_records_and_consumers_only_committed_records() -> None:
    async with running(SimulatedFileSystem()) as store:
        leader = await leading(store, others(1, 2))
        await leader.append(memoryview(batch(b"x")), acks=1).wait()
        found = leader.followers.read(0, 1000, at_least_one=True)
        assert parse_header(bytes_of(found.records)).next_offset == 1
        assert not leader.read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True).records


async def test_a_waiter_is_woken_when_a_record_is_written() -> None:
    async with running(SimulatedFileSystem()) as store:
        leader, waiter = await leading(store, others(1, 2)), store.new_waiter()
        waiter.watch(leader)
        leader.append(memoryview(batch(b"x")), acks=-1)
        with trio.fail_after(1):
            await waiter.wait()
        assert waiter.take_changed() == [leader]
        assert (leader.log_end_offset, leader.high_watermark) == (1, 0)


async def test_waiters_are_woken_when_the_leader_learns_a_new_isr_version() -> None:
    """The earlier Fetches of a follower in a session may no longer count."""
    async with running(SimulatedFileSystem()) as store:
        leader, waiter = await leading(store, others(1, 2)), store.new_waiter()
        waiter.watch(leader)
        changed = []
        for version in (1, 2, 2):
            leader.followers.learn(others(1, 2, version=version).committed)
            changed.append(waiter.take_changed())
        assert changed == [[], [leader], []]


def produced(sequence: int) -> memoryview:
    return memoryview(build_batch([Record(None, b"%d" % sequence, NOW_MS)], producer=(9, 0, sequence)))


async def test_duplicate_before_hw() -> None:
    """The log has sequence 5, and replica 3 has lost its connection. Retries of sequence 5 in later commit batches wait
    as the original does, until replica 3 fetches or leaves the ISR. The log has one copy."""
    async with running(SimulatedFileSystem()) as store:
        leader = await leading(store, others(1, 2, 3))
        originals = [leader.append(produced(sequence), acks=-1) for sequence in range(6)]
        await leader.append(memoryview(batch(b"another round")), acks=1).wait()
        assert not fetch(leader, 2, 7).has_moved
        assert fetch(leader, 3, 5).has_moved
        assert [one.is_settled for one in originals] == [True] * 5 + [False]
        retries = [leader.append(produced(5), acks=-1) for _ in range(2)]
        assert (await leader.append(produced(4), acks=-1).wait()).base_offset == 4
        assert (await leader.append(produced(5), acks=1).wait()).base_offset == 5
        assert not any(one.is_settled for one in retries)
        leader.followers.learn(others(1, 2, replicas=(3,), version=2).committed._replace(serving=(1, 2)))
        assert [(await one.wait()).base_offset for one in (originals[5], *retries)] == [5, 5, 5]
        assert (leader.high_watermark, leader.log_end_offset) == (7, 7)


async def test_with_too_few_in_sync_nothing_is_taken_that_all_should_have() -> None:
    async with running(SimulatedFileSystem()) as store:
        known = others(1, replicas=(2, 3), min_isr=2)
        leader = await leading(store, known)
        with pytest.raises(NotEnoughReplicas):
            leader.append(memoryview(batch(b"x")), acks=-1)
        await leader.append(memoryview(batch(b"y")), acks=1).wait()
        assert (leader.log_end_offset, leader.high_watermark) == (1, 0)
        leader.followers.learn(others(1, 2, replicas=(3,), min_isr=2, version=2).committed)
        assert fetch(leader, 2, 1).has_moved
        pending = leader.append(memoryview(batch(b"z")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        fetch(leader, 2, 2)
        assert pending.is_settled


async def test_an_isr_is_proposed_when_a_follower_has_caught_up() -> None:
    async with running(SimulatedFileSystem()) as store:
        leader = await leading(store, others(1, replicas=(2,)))
        assert leader.followers.propose() is None
        fetch(leader, 2, 0)
        proposal = leader.followers.propose()
        assert proposal is not None
        assert proposal.in_sync == {1, 2}


async def test_a_follower_asks_takes_and_asks_on() -> None:
    async with running(SimulatedFileSystem()) as store, running(SimulatedFileSystem()) as other:
        leader = await leading(store, others(1, 2), epoch=3)
        await leader.append(memoryview(batch(b"x")), acks=1).wait()
        [follower] = await other.open_partitions([Following(ORDERS, CONFIG, 3)])
        assert isinstance(follower, Partition)
        fetching = follower.fetching
        assert fetching is not None
        question = fetching.ask(follower.log_state)
        assert question == FollowerFetch(3, 0, -1, 0, 0)
        assert fetching.ask(follower.log_state) is None, "one at a time"
        records = bytes_of(leader.followers.read(0, 1000, at_least_one=True).records)
        assert fetching.answered(question, LeaderReply(0, 0), follower.log_state) == Append(0, 0)
        await follower.replicate(memoryview(bytearray(records))).wait()
        fetching.done()
        assert fetching.ask(follower.log_state) == FollowerFetch(3, 1, 3, 0, 0)
        with pytest.raises(NotLeaderOrFollower):
            fetch(follower, 2, 0)


async def test_nothing_is_cut_of_a_log_that_follows_no_more() -> None:
    async with running(SimulatedFileSystem()) as store:
        leader = await leading(store, others(1, 2))
        await leader.append(memoryview(batch(b"x")), acks=1).wait()
        [error] = await store.truncate_partitions({ORDERS: 0}, follows_in=0)
        assert isinstance(error, NotLeaderOrFollower)
        with pytest.raises(NotLeaderOrFollower):
            await store.reset_partition(ORDERS, 7, follows_in=0)
