"""The requests of a fetcher to its leader, over fake peer connections."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest
import trio
import trio.testing

from coordinator.errors import NotFollowedInEpoch
from coordinator.futures import SettableFuture
from engine.api import Following, TopicIdPartition
from engine.commit.commit_log import CommitLog
from engine.log_config import LogConfig
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from kafkawire.fetching.link_session import LINK_SESSION_ID
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
    WhatIsDropped,
)
from kafkawire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.peers.peers import Peers
from kafkawire.replication.fetcher import FetchDeps, Fetcher
from kafkawire.replication.questions import FetchLimits
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.metrics import ReplicationCounters
from kafkawire.requests.throttles import Throttle
from testkit.logs import ORDERS, running
from testkit.replicas import stamped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from engine.commit.journal_format import Barrier
    from engine.store import SegmentStore
    from kafkawire.wire.message import Message

LEADER = 2


class FakeLinks:
    """Keeps the requests, and lets the test answer them."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self._answers: list[SettableFuture[Message]] = []

    def call(self, broker_id: int, request: Message, version: int, *, purpose: str) -> SettableFuture[Message]:
        assert broker_id == LEADER
        self.asked.append(request)
        self._answers.append(SettableFuture())
        return self._answers[-1]

    async def answer(self, *rows: PartitionData) -> None:
        """Answer the last Fetch, with these rows of ORDERS."""
        last = max(at for at, request in enumerate(self.asked) if isinstance(request, FetchRequest))
        topics = [FetchableTopicResponse(topic_id=ORDERS.topic_id, partitions=list(rows))] if rows else []
        self._answers[last].settle(FetchResponse(session_id=LINK_SESSION_ID, responses=topics))
        await trio.testing.wait_all_tasks_blocked()

    async def send_end(self, offset: int) -> None:
        """Answer the last ListOffsets."""
        row = ListOffsetsPartitionResponse(offset=offset)
        topics = [ListOffsetsTopicResponse(name=ORDERS.topic, partitions=[row])]
        self._answers[-1].settle(ListOffsetsResponse(topics=topics))
        await trio.testing.wait_all_tasks_blocked()

    @property
    def epochs(self) -> list[int]:
        """The leader epochs of ORDERS in all Fetch requests."""
        fetches = [one for one in self.asked if isinstance(one, FetchRequest)]
        return [one.topics[0].partitions[0].current_leader_epoch for one in fetches]


@dataclass
class FakeMarks:
    """The fake control plane keeps the replicas that are to discard their logs, and waits until the test lets it
    answer."""

    asked: list[tuple[TopicIdPartition, int, int]] = field(default_factory=list)
    written: trio.Event = field(default_factory=trio.Event)
    is_refused: bool = False

    async def give_up(self, partition: TopicIdPartition, leader_epoch: int, offset: int) -> None:
        self.asked.append((partition, leader_epoch, offset))
        await self.written.wait()
        if self.is_refused:
            raise NotFollowedInEpoch


class Setting(NamedTuple):
    """A fetcher from LEADER and its dependencies."""

    fetcher: Fetcher
    links: FakeLinks
    store: SegmentStore
    marks: FakeMarks
    counters: ReplicationCounters

    async def follow(self, epoch: int) -> None:
        """Let the fetcher follow ORDERS, as an image says."""
        self.fetcher.follow(ORDERS, epoch, is_in_sync=True)
        await trio.testing.wait_all_tasks_blocked()

    async def become(self, epoch: int) -> None:
        """Give the replica its role, as the partition host does before the image is published."""
        await self.store.open_partitions([Following(ORDERS, LogConfig(), epoch)])


@asynccontextmanager
async def following() -> AsyncIterator[Setting]:
    async with running(SimulatedFileSystem()) as store, trio.open_nursery() as nursery:
        [log] = await store.open_partitions([Following(ORDERS, LogConfig(), 1)])
        assert isinstance(log, Partition)
        links, marks, counters = FakeLinks(), FakeMarks(), ReplicationCounters()
        deps = FetchDeps(
            cast("Peers", links),
            store,
            lambda: ReplicaState(replica_id=1, replica_epoch=7),
            trio.sleep_forever,
            marks.give_up,
            lambda: None,
            FetchLimits(),
            counters,
            Throttle(1, lambda: 0, samples=1, sample_ms=1),
        )
        fetcher = Fetcher(LEADER, "fetch-0", log.log_dir, deps)
        nursery.start_soon(fetcher.run)
        yield Setting(fetcher, links, store, marks, counters)
        nursery.cancel_scope.cancel()


async def test_follower_fetches_in_a_new_epoch_only_after_the_image_names_the_leader() -> None:
    async with following() as one:
        await one.follow(1)
        await one.become(2)
        await one.links.answer()
        assert one.links.epochs == [1]
        await one.follow(2)
        assert one.links.epochs == [1, 2]


async def test_new_fetch_position_ends_the_parked_fetch_with_a_single_request() -> None:
    async with following() as one:
        await one.follow(1)
        assert one.links.epochs == [1]
        await one.become(2)
        for _ in range(2):
            await one.follow(2)
        assert [type(request) for request in one.links.asked] == [FetchRequest, ApiVersionsRequest]
        await one.links.answer()
        assert one.links.epochs == [1, 2]


async def test_idle_fetcher_sends_a_fetch_as_soon_as_it_follows_a_partition() -> None:
    async with following() as one:
        start_s = trio.current_time()
        await trio.sleep(0.1)
        assert not one.links.asked
        await one.follow(1)
        assert (one.links.epochs, trio.current_time() - start_s) == ([1], 0.1)


async def test_where_there_is_no_room_the_log_begins_where_the_leaders_does() -> None:
    """Records are not appended, and the follower deletes what the leader has deleted: then there is room again."""

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


async def test_log_starts_that_the_leader_has_moved_together_are_taken_over_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention on the leader moves many log starts at once. They need one announcement, not one for each."""
    announced: list[int] = []
    announce = CommitLog.announce

    async def noting(commit_log: CommitLog, barriers: Sequence[Barrier]) -> None:
        announced.append(len(barriers))
        await announce(commit_log, barriers)

    monkeypatch.setattr(CommitLog, "announce", noting)
    many = [TopicIdPartition(ORDERS.topic_id, ORDERS.topic, number) for number in range(20)]

    def rows(log_start_offset: int) -> list[PartitionData]:
        records = b"" if log_start_offset else b"".join(stamped(offset, 1, b"v") for offset in range(10))
        return [
            PartitionData(partition_index=at, high_watermark=10, log_start_offset=log_start_offset, records=records)
            for at in range(20)
        ]

    async with following() as one:
        await one.store.open_partitions([Following(partition, LogConfig(), 1) for partition in many])
        for partition in many:
            one.fetcher.follow(partition, 1, is_in_sync=True)
        await trio.testing.wait_all_tasks_blocked()
        await one.links.answer(*rows(0))
        announced.clear()
        await one.links.answer(*rows(7))
        assert [one.store.replica(partition).log.start_offset for partition in many] == [7] * 20
        assert announced == [20]
        assert isinstance(one.links.asked[-1], FetchRequest)


async def test_logs_that_part_from_their_leaders_together_are_cut_with_one_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs of another leader epoch need another checkpoint, and each log's outcome is its own."""
    checkpoints: list[int] = []
    checkpoint_alone = CommitLog.checkpoint_alone

    async def noting(commit_log: CommitLog) -> None:
        checkpoints.append(1)
        await checkpoint_alone(commit_log)

    monkeypatch.setattr(CommitLog, "checkpoint_alone", noting)
    many = [TopicIdPartition(ORDERS.topic_id, ORDERS.topic, number) for number in range(20)]
    epochs = [1 if one.partition else 2 for one in many]
    async with following() as one:
        await one.store.open_partitions(
            [Following(partition, LogConfig(), epoch) for partition, epoch in zip(many, epochs, strict=True)]
        )
        for partition, epoch in zip(many, epochs, strict=True):
            one.fetcher.follow(partition, epoch, is_in_sync=True)
        await trio.testing.wait_all_tasks_blocked()
        records = b"".join(stamped(offset, 1, b"v") for offset in range(10))
        await one.links.answer(
            *(PartitionData(partition_index=at, high_watermark=5, records=records) for at in range(20))
        )
        checkpoints.clear()
        parted = EpochEndOffset(epoch=1, end_offset=6)
        await one.links.answer(*(PartitionData(partition_index=at, diverging_epoch=parted) for at in range(20)))
        assert [one.store.replica(partition).log_end_offset for partition in many] == [6] * 20
        assert len(checkpoints) == 2
        asked = [one for one in one.links.asked if isinstance(one, FetchRequest)][-1]
        assert {row.fetch_offset for topic in asked.topics for row in topic.partitions} == {6}


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_log_begins_anew_once_the_others_know(*, is_refused: bool) -> None:
    """Else it may be elected cleanly with an empty log (RULES K8). If its role is another by then, the log stays as it
    is."""
    dropped = WhatIsDropped(tombstones_to=20, swaps=6, gone_by=5)
    records = b"".join(stamped(offset, 1, b"v") for offset in range(10))
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(high_watermark=10, records=records))
        follower = one.store.replica(ORDERS)
        await one.links.answer(PartitionData(high_watermark=10, log_start_offset=0, dropped=dropped))
        await trio.sleep(60)
        assert (one.marks.asked, follower.log_end_offset) == ([(ORDERS, 1, 0)], 10)
        assert not [one for one in one.links.asked[2:] if isinstance(one, FetchRequest)]
        one.marks.is_refused = is_refused
        one.marks.written.set()
        await trio.testing.wait_all_tasks_blocked()
        assert follower.log_end_offset == (10 if is_refused else 0)
        await trio.sleep(FetchLimits().backoff_ms / 1000)
        await trio.testing.wait_all_tasks_blocked()
        assert len(one.links.epochs) == 3


async def test_empty_log_starts_at_its_leaders_log_start_without_a_suspect_mark() -> None:
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        for offset in (70, 80):
            await one.links.send_end(offset)
        follower = one.store.replica(ORDERS)
        assert (one.marks.asked, follower.log_end_offset) == ([], 70)
