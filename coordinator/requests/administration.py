"""Requests that change the cluster: decided on its newest image, and written, by whichever broker receives them.

`Coordinator` has the means to carry them out.
"""

from __future__ import annotations

import abc
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coordinator.api import DEFAULT, TopicInfo
from coordinator.metadata.ids import new_id
from coordinator.metadata.plans import TOGETHER_MAX, Plan
from coordinator.requests import topics
from coordinator.requests.create_partitions import CreatePartitionsRequest
from coordinator.requests.decisions import Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from coordinator.api import (
        ClusterImage,
        ConfigChange,
        ElectionType,
        FeatureUpdate,
        Reassignment,
        Refusals,
    )
    from coordinator.errors import CoordinatorError
    from coordinator.requests.decisions import Decisions

    Decide = Callable[[ClusterImage], Plan]

T = TypeVar("T")
START_RANGE = 1 << 16  # of the places where leaders of a new topic begin


class RequestedChanges(abc.ABC):
    """The part of a `ClusterService` that changes something."""

    def __init__(self, decisions: Decisions, random: Random) -> None:
        self._decisions = decisions
        self._random = random

    @abc.abstractmethod
    async def _change(self, decide: Decide, *, validate_only: bool = False) -> Plan:
        """Decide on the newest image and carry the decision out. Raises the errors of `decide`, and
        MetadataUnavailable."""

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """See `ClusterService`."""
        request = topics.TopicRequest(name, partition_count, replication_factor, assignments, configs or {})
        draw = self._draw()
        plan = await self._change(
            lambda image: self._decisions.creation(image, request, draw), validate_only=validate_only
        )
        return topic_of(plan)

    async def create_partitions(
        self,
        topic: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicInfo:
        """See `ClusterService`."""
        request, draw = CreatePartitionsRequest(topic, partition_count, assignments), self._draw()
        plan = await self._change(
            lambda image: self._decisions.growth(image, request, draw), validate_only=validate_only
        )
        return topic_of(plan)

    async def alter_topic_configs(
        self, topic: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> TopicInfo:
        """See `ClusterService`."""
        plan = await self._change(
            lambda image: self._decisions.topic_configs(image, topic, changes, replaces=replace),
            validate_only=validate_only,
        )
        return topic_of(plan)

    async def alter_broker_configs(
        self, broker: str, changes: Sequence[ConfigChange], *, replace: bool = False, validate_only: bool = False
    ) -> None:
        """See `ClusterService`."""
        await self._change(
            lambda image: self._decisions.broker_configs(image, broker, changes, replaces=replace),
            validate_only=validate_only,
        )

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """See `ClusterService`."""
        await self._change(lambda image: self._decisions.features(image, updates), validate_only=validate_only)

    async def reassign(self, asked: Sequence[Reassignment], *, may_change_factor: bool = True) -> Refusals:
        """See `ClusterService`."""
        decide = partial(self._decisions.reassignments, may_change_factor=may_change_factor)
        return await self._each(asked, decide)

    async def elect_leaders(self, kind: ElectionType, partitions: Sequence[tuple[str, int]]) -> Refusals:
        """See `ClusterService`."""
        return await self._each(partitions, partial(self._decisions.elections, kind=kind))

    async def unregister_broker(self, broker_id: int) -> None:
        """See `ClusterService`."""
        await self._change(lambda image: self._decisions.unregistration(image, broker_id))

    async def _each(self, orders: Sequence[T], decide: Callable[[ClusterImage, Sequence[T]], Plan]) -> Refusals:
        """Decide as many at a time as one change holds, so that finished requests are not decided again."""
        refusals: Refusals = []
        for start in range(0, len(orders), TOGETHER_MAX):
            refusals += await self._together(orders[start : start + TOGETHER_MAX], decide)
        return refusals

    async def _together(
        self, orders: Sequence[T], decide: Callable[[ClusterImage, Sequence[T]], Plan]
    ) -> Sequence[CoordinatorError | None]:
        return (await self._change(lambda image: decide(image, orders))).refused

    def _draw(self) -> Draw:
        return Draw(new_id(self._random), self._random.randrange(START_RANGE))


def topic_of(plan: Plan) -> TopicInfo:
    """The topic of a plan that is about one."""
    assert plan.topic is not None
    return plan.topic
