"""Fetch sessions of followers (KIP-227): they name all partitions once, and then only changes; leaders know all
positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from engine.errors import StorageError
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.replication import questions
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, settled
from kafkawire.tests.test_cluster import create as create_topic
from kafkawire.tests.test_replication import (
    TOPIC,
    acknowledged,
    create,
    equal,
    in_sync,
    produce,
    replica,
    state,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.replication.exchange import FollowerFetch
    from kafkawire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
    from kafkawire.replication.fetch_session import FetchContents, Place
    from kafkawire.replication.questions import FetchLimits, PartitionReply


class SentFetches:
    """The Fetch requests of all followers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, FetchContents]] = []
        really = questions.fetch_request

        def noting(me: ReplicaState, made: FetchContents, limits: FetchLimits) -> FetchRequest:
            self.made.append((me.replica_id, made))
            return really(me, made, limits)

        monkeypatch.setattr("kafkawire.replication.fetcher.fetch_request", noting)

    def take(self, broker_id: int = 0) -> list[FetchContents]:
        """The requests of one broker, or of all."""
        found = [made for one, made in self.made if broker_id in (0, one)]
        self.made.clear()
        return found

    def named(self) -> set[int]:
        """The partition numbers that these requests name."""
        return {one.partition for made in self.take() for one in made.named}


@pytest.fixture
def sent_fetches(monkeypatch: pytest.MonkeyPatch) -> SentFetches:
    return SentFetches(monkeypatch)


def follower(cluster: MemoryCluster) -> int:
    return next(one for one in BROKERS if one != state(cluster).leader)


def fetch_position(cluster: MemoryCluster, broker_id: int) -> FollowerFetch:
    """The present fetch position of that replica."""
    fetching = replica(cluster, broker_id).fetching
    assert fetching is not None
    assert fetching._asked is not None
    return fetching._asked


async def test_idle_partition_is_named_once_in_a_fetch_session(sent_fetches: SentFetches) -> None:
    async with open_cluster() as (cluster, _):
        assert await create_topic(cluster, 1, TOPIC, 20, 3) == 0
        await settled(cluster)
        await trio.sleep(3)
        assert sent_fetches.named() == set(range(20))
        await trio.sleep(3)
        made = sent_fetches.take()
        assert len(made) > 12, "they ask all the time"
        assert not any(one.named or one.forgotten for one in made)
        await acknowledged(cluster, b"v")
        await trio.sleep(3)
        assert sent_fetches.named() == {0}
        lags = replica(cluster, state(cluster).leader).followers.lags().values()
        assert [(lag.offsets, lag.late_ms) for lag in lags] == [(0, 0)] * 2


async def test_idle_follower_stays_in_sync_while_its_broker_fetches(sent_fetches: SentFetches) -> None:
    async with open_cluster(replica_lag_time_max_ms="2000") as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"first")
        for _ in range(3):
            await trio.sleep(30)
            started_s = trio.current_time()
            await acknowledged(cluster, b"v")
            assert trio.current_time() - started_s < 0.1
        assert all(one.broker.metrics.replication.isr_shrinks == 0 for one in cluster.brokers.values())


async def test_over_another_link_all_is_named_again(sent_fetches: SentFetches) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"before")
        sent_fetches.take()
        cluster.brokers[state(cluster).leader].broker.end_links()
        await acknowledged(cluster, b"after")
        assert {one.epoch for one in sent_fetches.take()} >= {0}
        await in_sync(cluster, *BROKERS)
        await equal(cluster)


async def test_follower_that_dropped_a_reply_gets_the_high_watermark_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower may drop a reply when its role changes. It has all records by then, and the next reply must repeat the
    offsets."""
    really, dropped = questions.partition_replies, 0

    def lossy(response: FetchResponse) -> Iterator[tuple[Place, PartitionReply]]:
        nonlocal dropped
        for place, reply in really(response):
            is_dropped = dropped < 2 and not reply.records and reply.answer.high_watermark > 0
            dropped += is_dropped
            yield place, reply._replace(answer=reply.answer._replace(high_watermark=0)) if is_dropped else reply

    async with open_cluster() as (cluster, _):
        await create(cluster)
        monkeypatch.setattr("kafkawire.replication.fetcher.partition_replies", lossy)
        await acknowledged(cluster, b"v")
        await trio.sleep(3)
        assert dropped == 2
        assert [replica(cluster, one).high_watermark for one in BROKERS] == [1] * 3


async def test_closed_replica_is_forgotten_by_the_fetch_session_and_leaves_the_isr(sent_fetches: SentFetches) -> None:
    async with open_cluster(replica_lag_time_max_ms="2000") as (cluster, _):
        await create(cluster)
        assert await create_topic(cluster, 1, "other", 6, 3) == 0
        await acknowledged(cluster, b"before")
        await trio.sleep(1)
        silent = follower(cluster)
        sent_fetches.take()
        replica(cluster, silent).close(lambda: StorageError("its disk is gone"))
        await trio.sleep(1)
        assert [one.topic for made in sent_fetches.take(silent) for one in made.forgotten] == [TOPIC]
        assert (await produce(cluster, b"without it")).error_code == 0
        assert silent not in state(cluster).isr


async def test_replica_with_a_new_role_is_forgotten_with_the_next_fetch_request(sent_fetches: SentFetches) -> None:
    """The old leader must not take it for a follower of the old epoch (RULES K24), even if its broker has not seen the
    new metadata. It fetches in the new epoch when it knows the leader."""
    async with open_cluster() as (cluster, _):
        await create(cluster)
        assert await create_topic(cluster, 1, "other", 6, 3) == 0
        await acknowledged(cluster, b"before")
        await trio.sleep(1)
        one = follower(cluster)
        log, epoch = replica(cluster, one), state(cluster).leader_epoch
        before = fetch_position(cluster, one)
        sent_fetches.take()
        log.follow(log.config, epoch + 1)
        await trio.sleep(0.6)
        made = next(made for made in sent_fetches.take(one) if made.named or made.forgotten)
        assert ([*made.named], [each.topic for each in made.forgotten]) == ([], [TOPIC])
        assert before.leader_epoch == epoch


async def test_a_topic_that_is_deleted_is_asked_for_no_longer(sent_fetches: SentFetches) -> None:
    async with open_cluster() as (cluster, _):
        await create(cluster)
        assert await create_topic(cluster, 1, "other", 3, 3) == 0
        await settled(cluster)
        await trio.sleep(1)
        reply = await call(cluster, 1, DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000), 5)
        assert reply.responses[0].error_code == 0
        await settled(cluster)
        await trio.sleep(2)
        sent_fetches.take()
        await trio.sleep(2)
        assert not any(made.named or made.forgotten for made in sent_fetches.take())
