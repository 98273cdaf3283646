"""What a fetcher asks its leader, and when, over links that are a test's own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import trio
import trio.testing

from coordinator.shards.pending import Answer
from engine.api import Following
from engine.files.twin import MemoryFileSystem
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.partitions.tests.test_follower import stamped
from engine.tests.helpers import ORDERS, running
from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.links.links import Links
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from kafkawire.replication.fetcher import Fetcher, FetchWorld
from kafkawire.replication.questions import FetchLimits
from kafkawire.requests.metrics import ReplicationCounters
from kafkawire.requests.throttles import Throttle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from engine.store import SegmentStore
    from kafkawire.wire.message import Message

LEADER = 2


class FakeLinks:
    """Keeps what is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self._answers: list[Answer[Message]] = []

    def call(self, broker_id: int, request: Message, version: int, *, purpose: str) -> Answer[Message]:
        assert broker_id == LEADER
        self.asked.append(request)
        self._answers.append(Answer())
        return self._answers[-1]

    async def answer(self, *rows: PartitionData) -> None:
        """The last Fetch, with what is new of ORDERS."""
        last = max(at for at, request in enumerate(self.asked) if isinstance(request, FetchRequest))
        topics = [FetchableTopicResponse(topic_id=ORDERS.topic_id, partitions=list(rows))] if rows else []
        self._answers[last].settle(FetchResponse(session_id=LINK_SESSION_ID, responses=topics))
        await trio.testing.wait_all_tasks_blocked()

    @property
    def epochs(self) -> list[int]:
        """In which Fetches ask for ORDERS."""
        fetches = [one for one in self.asked if isinstance(one, FetchRequest)]
        return [one.topics[0].partitions[0].current_leader_epoch for one in fetches]


class Setting(NamedTuple):
    """A fetcher from LEADER and what is around it."""

    fetcher: Fetcher
    links: FakeLinks
    store: SegmentStore

    async def follow(self, epoch: int) -> None:
        """As the image says."""
        self.fetcher.follow(ORDERS, epoch, is_in_sync=True)
        await trio.testing.wait_all_tasks_blocked()

    async def become(self, epoch: int) -> None:
        """As the host does before there is that image."""
        await self.store.open_partitions([Following(ORDERS, LogConfig(), epoch)])


@asynccontextmanager
async def following() -> AsyncIterator[Setting]:
    async with running(MemoryFileSystem()) as store, trio.open_nursery() as nursery:
        [log] = await store.open_partitions([Following(ORDERS, LogConfig(), 1)])
        assert isinstance(log, Partition)
        links = FakeLinks()
        world = FetchWorld(
            cast("Links", links),
            store,
            lambda: ReplicaState(replica_id=1, replica_epoch=7),
            trio.sleep_forever,
            lambda: None,
            FetchLimits(),
            ReplicationCounters(),
            Throttle(1, lambda: 0, samples=1, sample_ms=1),
        )
        fetcher = Fetcher(LEADER, "fetch-0", log.log_dir, world)
        nursery.start_soon(fetcher.run)
        yield Setting(fetcher, links, store)
        nursery.cancel_scope.cancel()


async def test_in_a_new_epoch_nobody_is_asked_before_the_image_says_who_leads() -> None:
    async with following() as one:
        await one.follow(1)
        await one.become(2)
        await one.links.answer()
        assert one.links.epochs == [1]
        await one.follow(2)
        assert one.links.epochs == [1, 2]


async def test_what_is_new_to_ask_ends_the_wait_of_what_was_asked_once() -> None:
    async with following() as one:
        await one.follow(1)
        assert one.links.epochs == [1]
        await one.become(2)
        for _ in range(2):
            await one.follow(2)
        assert [type(request) for request in one.links.asked] == [FetchRequest, ApiVersionsRequest]
        await one.links.answer()
        assert one.links.epochs == [1, 2]


async def test_whoever_has_nothing_to_ask_asks_as_soon_as_there_is_something() -> None:
    async with following() as one:
        begun_s = trio.current_time()
        await trio.sleep(0.1)
        assert not one.links.asked
        await one.follow(1)
        assert (one.links.epochs, trio.current_time() - begun_s) == ([1], 0.1)


async def test_where_there_is_no_room_the_log_begins_where_the_leaders_does() -> None:
    """So that there is some again: records are not taken, and what the leader has deleted goes."""

    def row(number: int, log_start_offset: int) -> PartitionData:
        records = bytes(stamped(number, 1, b"v"))
        return PartitionData(high_watermark=10, log_start_offset=log_start_offset, records=records)

    async with following() as one:
        await one.follow(1)
        for number in range(10):
            await one.links.answer(row(number, 0))
        follower = one.store.replica(ORDERS)
        assert (follower.log_end_offset, follower.log.start_offset) == (10, 0)
        follower.log_dir.is_nearly_full = True
        await one.links.answer(row(10, 7))
        assert (follower.log_end_offset, follower.log.start_offset) == (10, 7)
        follower.log_dir.is_nearly_full = False
        await trio.sleep(FetchLimits().backoff_ms / 1000)
        await trio.testing.wait_all_tasks_blocked()
        await one.links.answer(row(10, 7))
        assert follower.log_end_offset == 11
