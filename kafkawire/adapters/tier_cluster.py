"""Copies in the remote tier of the data that a restore of the cluster needs besides segments: the topics of the tier,
and at intervals the committed offsets of their partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from coordinator.errors import GroupError
from coordinator.groups.commands import FetchAllOffsets, GroupCommand
from kafkawire.requests.futures import until_settled
from tiering.cluster_objects import CommittedCopy, OffsetsCopy, TopicCopy
from tiering.errors import TierError
from tiering.object_store import StoreError, StoreUnavailable
from tiering.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import ClusterImage, ClusterService, Future, TopicInfo
    from coordinator.groups.api import FetchedOffset, GroupCounters, GroupListing
    from tiering.cluster_objects import ClusterObjects

T = TypeVar("T")
ResultT = TypeVar("ResultT")

GROUPS_AT_ONCE = 64


class Groups(Protocol):
    """The group coordinators."""

    @property
    def counters(self) -> GroupCounters: ...
    def list_groups(self) -> Future[list[GroupListing]]: ...
    def ask(self, command: GroupCommand[ResultT]) -> Future[ResultT]: ...


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """The source of the copies, and their dependencies."""

    broker_id: int
    cluster: ClusterService
    groups: Groups
    is_in_tier: Callable[[TopicInfo], bool]
    now_ms: Callable[[], int]
    on_problem: Callable[[str], None]


class ClusterCopies:
    """The copies of one broker. Only the controller copies topics."""

    def __init__(self, objects: ClusterObjects, source: ClusterSource, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._objects = objects
        self._source = source
        self._topics: dict[bytes, TopicInfo] = {}  # as they were copied
        self._commits = -1
        self._topic_problems = Problems(source.on_problem)
        self._offset_problems = Problems(source.on_problem)

    async def serve(self) -> None:
        """Copy until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_topics)
            while True:
                await trio.sleep(self._interval_s)
                await self.copy_offsets()

    async def _follow_topics(self) -> None:
        cluster = self._source.cluster
        while True:
            image = cluster.image
            if await self.copy_topics(image):
                await cluster.wait_for_image_after(image.version)
            else:
                await trio.sleep(self._interval_s)

    async def copy_topics(self, image: ClusterImage) -> bool:
        """Copy the topics that have changed, each by itself; return whether all could be copied."""
        if image.controller_id != self._source.broker_id:
            self._topics.clear()  # another controller copies meanwhile
            self._objects.forget_listing()
            return True
        tiered = {one.topic_id: one for one in image.topics.values() if self._source.is_in_tier(one)}
        for gone in self._topics.keys() - tiered.keys():
            del self._topics[gone]
        errors: list[StoreError | TierError] = []
        for topic_id, topic in tiered.items():
            before = self._topics.get(topic_id)
            if before is not None and _copy_of(before) == _copy_of(topic):
                continue
            try:
                await self._objects.put_topic(_copy_of(topic))
                self._topics[topic_id] = topic
            except (StoreError, TierError) as error:
                errors.append(error)
                self._topic_problems.note(f"topics are not copied to the tier for now: {error}")
                if isinstance(error, StoreUnavailable):
                    break  # the others would run into the same time-out
        if not errors:
            self._topic_problems.clear()
        return not errors

    async def copy_offsets(self) -> None:
        """Copy the committed offsets, if there were commits since the last copy."""
        commits = self._source.groups.counters.commits
        if commits == self._commits:
            return
        try:
            groups = await self._committed()
            if groups or self._commits > 0:
                copy = OffsetsCopy(at_ms=self._source.now_ms(), groups=groups)
                await self._objects.put_offsets(self._source.broker_id, copy)
        except GroupError:
            return  # the coordinator is loading: the next interval tries again
        except (StoreError, TierError) as error:
            self._offset_problems.note(f"committed offsets are not copied to the tier for now: {error}")
        else:
            self._commits = commits
            self._offset_problems.clear()

    async def _committed(self) -> dict[str, list[CommittedCopy]]:
        """Committed offsets of topics in the tier, by group. Raises GroupError."""
        image, groups = self._source.cluster.image, self._source.groups
        tiered = {one.name: one.topic_id.hex() for one in image.topics.values() if self._source.is_in_tier(one)}
        found: dict[str, list[CommittedCopy]] = {}
        for number, listed in enumerate(await _settled(groups.list_groups())):
            if number % GROUPS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            of_group = await _settled(groups.ask(FetchAllOffsets(listed.group_id)))
            copies = [_committed_copy(one, tiered[one.topic]) for one in of_group if one.topic in tiered]
            if kept := [one for one in copies if one is not None]:
                found[listed.group_id] = kept
        return found


def _copy_of(topic: TopicInfo) -> TopicCopy:
    return TopicCopy(
        topic_id=topic.topic_id.hex(),
        topic=topic.name,
        partition_count=len(topic.partitions),
        configs=dict(sorted(topic.configs.items())),
    )


def _committed_copy(fetched: FetchedOffset, topic_id: str) -> CommittedCopy | None:
    committed = fetched.committed
    if isinstance(committed, GroupError):
        return None
    return CommittedCopy(topic_id, fetched.partition, committed.offset, committed.leader_epoch, committed.metadata)


async def _settled(pending: Future[T]) -> T:
    """Wait for a result. Raises GroupError."""
    await until_settled(pending)
    return pending.result()
