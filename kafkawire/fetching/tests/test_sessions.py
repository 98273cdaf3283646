"""Fetch sessions: resumed, refused and evicted ones, and the turns of their partitions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import cast

import pytest
import trio

from engine.api import PartitionLog, TopicIdPartition
from kafkawire.fetching import sessions as fetch_sessions
from kafkawire.fetching.expiry import CHECK_INTERVAL_S, expire_sessions
from kafkawire.fetching.sessions import (
    EVICTION_MS,
    LAST_EPOCH,
    UNUSED_MAX_MS,
    FetchSession,
    FetchSessionCache,
    FetchTarget,
    TargetWatch,
)
from kafkawire.requests.errors import ErrorCode


@dataclass(eq=False)
class FakeLog:
    partition: TopicIdPartition


@dataclass
class FakeWaiter:
    """A fake waiter of the engine: the test names the logs that have changed."""

    watched: list[PartitionLog] = field(default_factory=list)
    changed: list[PartitionLog] = field(default_factory=list)
    closed: bool = False

    def watch(self, log: PartitionLog) -> None:
        self.watched.append(log)

    def unwatch(self, log: PartitionLog) -> None:
        self.watched.remove(log)

    def take_changed(self) -> list[PartitionLog]:
        changed, self.changed = self.changed, []
        return changed

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    ms: int = 1_000

    def __call__(self) -> int:
        return self.ms


def target(topic: str = "t", partition: int = 0, offset: int = 0, *, by_id: bool = False) -> FetchTarget:
    found = FetchTarget(
        topic=topic,
        topic_id=topic.encode().ljust(16, b"\0"),
        partition=partition,
        by_id=by_id,
        fetch_offset=offset,
        max_size_bytes=1_000,
        last_fetched_epoch=-1,
        leader_epoch=-1,
    )
    found.log = cast("PartitionLog", FakeLog(TopicIdPartition(found.topic_id, topic, partition)))
    return found


def cache_of(slots: int = 2, clock: Clock | None = None) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1), clock or Clock())


def opened(cache: FetchSessionCache, *targets: FetchTarget, by_id: bool = False) -> tuple[FetchSession, FakeWaiter]:
    waiter = FakeWaiter()
    watch = TargetWatch(waiter)
    for one in targets:
        watch.follow(one)
    return cache.create(targets, watch, by_id=by_id), waiter


def test_a_session_is_resumed_with_rising_epochs() -> None:
    cache = cache_of()
    session, _ = opened(cache, target())
    assert session.session_id > 0
    assert cache.resume(session.session_id, 1, by_id=False) is session
    assert cache.resume(session.session_id, 2, by_id=False) is session
    assert session.epoch == 3


def test_after_the_last_epoch_comes_1() -> None:
    cache = cache_of()
    session, _ = opened(cache, target())
    session.epoch = LAST_EPOCH
    assert cache.resume(session.session_id, LAST_EPOCH, by_id=False) is session
    assert session.epoch == 1


def test_a_wrong_id_and_a_wrong_epoch_are_told_apart() -> None:
    cache = cache_of()
    session, _ = opened(cache, target())
    assert cache.resume(session.session_id + 1, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(session.session_id, 2, by_id=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(session.session_id, 1, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert session.epoch == 1, "a refused request changes nothing"


def test_a_session_takes_one_request_at_a_time() -> None:
    cache = cache_of()
    session, _ = opened(cache, target())
    assert cache.resume(session.session_id, 1, by_id=False) is session
    session.acquire()
    assert cache.resume(session.session_id, 2, by_id=False) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.release()
    assert cache.resume(session.session_id, 2, by_id=False) is session


def test_a_partition_is_news_again_to_a_replica_that_knows_older_offsets() -> None:
    """A replica may have dropped a reply, and its next request says so; a client sends nothing of this."""
    receiver, lossy = target(), target()
    assert receiver.note_sent(9, 3)
    assert not receiver.note_sent(9, 3)
    receiver.adopt(lossy)
    assert not receiver.note_sent(9, 3)
    for lossy.high_watermark, lossy.log_start_offset in ((8, 3), (9, 2)):
        receiver.adopt(lossy)
        assert receiver.note_sent(9, 3)
        assert not receiver.note_sent(9, 3)


def test_a_removed_session_stops_watching_when_no_request_waits_on_it() -> None:
    cache = cache_of()
    idle, idle_waiter = opened(cache, target())
    busy, busy_waiter = opened(cache, target())
    busy.acquire()
    cache.remove(idle.session_id)
    cache.remove(busy.session_id)
    assert [idle_waiter.closed, busy_waiter.closed] == [True, False]
    busy.release()
    assert busy_waiter.closed
    assert len(cache) == 0


def test_update_adds_changes_and_forgets() -> None:
    cache = cache_of()
    first, second = target(partition=0), target(partition=1)
    session, waiter = opened(cache, first, second)
    session.requeue(first, served=False, has_more=False)
    session.requeue(second, served=False, has_more=False)
    assert not session.pending
    third = target(partition=2)
    session.update([target(partition=0, offset=7), third], [second.key])
    assert first.fetch_offset == 7
    assert list(session.pending) == [first, third]
    assert set(session.targets) == {("t", 0), ("t", 2)}
    assert waiter.watched == [first.log]


def test_a_changed_log_is_pending_again_in_its_session() -> None:
    cache = cache_of()
    quiet, loud = target(partition=0), target(partition=1)
    session, waiter = opened(cache, quiet, loud)
    for one in (quiet, loud):
        session.requeue(one, served=False, has_more=False)
    assert loud.log is not None
    waiter.changed = [loud.log]
    session.update([], [])
    assert list(session.pending) == [loud]


def test_a_served_partition_moves_to_the_end_of_the_queue() -> None:
    cache = cache_of()
    targets = [target(partition=number) for number in range(3)]
    session, _ = opened(cache, *targets)
    session.requeue(targets[0], served=True, has_more=True)
    assert list(session.pending) == [targets[1], targets[2], targets[0]]
    session.requeue(targets[1], served=False, has_more=True)
    assert list(session.pending) == [targets[1], targets[2], targets[0]], "not served: keeps its turn"
    session.requeue(targets[2], served=True, has_more=False)
    assert list(session.pending) == [targets[1], targets[0], targets[2]], "records may be fetched again"


def test_a_target_is_news_when_its_offsets_change_and_after_an_error() -> None:
    one = target()
    assert one.note_sent(5, 0)
    assert not one.note_sent(5, 0)
    assert one.note_sent(5, 1)
    one.note_error_sent()
    assert one.note_sent(5, 1), "after an error the partition is told again"


def test_a_watch_follows_a_target_to_its_new_log() -> None:
    waiter = FakeWaiter()
    watch = TargetWatch(waiter)
    one = target()
    watch.follow(one)
    watch.follow(one)
    assert waiter.watched == [one.log]
    one.log = cast("PartitionLog", FakeLog(TopicIdPartition(b"other", "t", 0)))
    watch.follow(one)
    assert waiter.watched == [one.log]
    one.log = None
    watch.follow(one)
    assert not waiter.watched
    assert len(watch) == 0


def test_a_full_cache_evicts_only_the_unused_and_the_old_and_small() -> None:
    clock = Clock()
    cache = cache_of(slots=2, clock=clock)
    small, small_waiter = opened(cache, target())
    large, _ = opened(cache, *(target(partition=number) for number in range(5)))
    assert not cache.has_room_for(100), "both are young"
    clock.ms += EVICTION_MS + 1
    for session in (small, large):
        cache.resume(session.session_id, 1, by_id=False)
    assert not cache.has_room_for(1), "nothing smaller to evict"
    assert cache.has_room_for(2)
    assert small_waiter.closed
    assert cache.evictions == 1
    opened(cache, target())
    clock.ms += EVICTION_MS + 1
    assert cache.has_room_for(1), "the longest unused goes whatever its size"
    assert cache.resume(large.session_id, 2, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.weight == 1


def test_an_unused_session_expires_and_is_no_longer_watched() -> None:
    clock = Clock()
    cache = cache_of(slots=10, clock=clock)
    gone, gone_waiter = opened(cache, target("a"))
    waiting, waiting_waiter = opened(cache, target("a"))
    used, _ = opened(cache, target("a"))
    waiting.acquire()
    clock.ms += UNUSED_MAX_MS
    cache.expire()
    assert len(cache) == 3
    assert cache.resume(used.session_id, 1, by_id=False) is used
    clock.ms += 1
    cache.expire()
    assert [gone_waiter.closed, waiting_waiter.closed] == [True, False], "a long poll is a use"
    assert cache.resume(gone.session_id, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    waiting.release()
    cache.expire()
    assert waiting_waiter.closed
    assert cache.resume(used.session_id, 2, by_id=False) is used
    assert cache.weight == 1


async def test_a_client_that_comes_back_finds_its_session_for_a_while() -> None:
    cache = FetchSessionCache(2, random.Random(1), lambda: round(trio.current_time() * 1000))
    session, waiter = opened(cache, target())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expire_sessions, cache)
        for epoch in range(1, 10):
            await trio.sleep(UNUSED_MAX_MS / 1000)
            assert cache.resume(session.session_id, epoch, by_id=False) is session
        await trio.sleep(UNUSED_MAX_MS / 1000 + CHECK_INTERVAL_S + 1)
        assert waiter.closed
        assert len(cache) == 0
        nursery.cancel_scope.cancel()


def test_without_slots_there_are_no_sessions() -> None:
    assert not cache_of(slots=0).has_room_for(1)


@pytest.mark.sources
def test_the_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 3)
    clock = Clock()
    cache = cache_of(slots=10, clock=clock)
    session, _ = opened(cache, target("a"), target("b"))
    assert cache.has_room_for(1)
    assert not cache.has_room_for(2)
    assert cache.may_grow(session, [target("a"), target("c")])
    assert not cache.may_grow(session, [target("c"), target("d")])
    clock.ms += EVICTION_MS + 1
    assert cache.has_room_for(2), "over a session that nobody uses"
    assert len(cache) == 0


@pytest.mark.sources
def test_an_overlong_topic_name_counts_by_its_length_in_the_session_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 10)
    cache = cache_of(slots=10)
    session, _ = opened(cache, target("a" * 249))
    assert cache.weight == 1
    long = target("b" * 32_000)
    assert not cache.may_grow(session, [long])
    session.update([long], [])
    session.update([], [long.key])
    assert session.weight == 1
