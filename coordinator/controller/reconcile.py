"""Reconciliation by the controller: pure, from the image and the brokers that are alive to operations.

Brokers that are gone are fenced first; then every partition gets the state that `elections` gives it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import CLUSTER_DEFAULT, BrokerState
from coordinator.controller import elections
from coordinator.controller.elections import Electorate
from coordinator.metadata.nodes import encode_member
from coordinator.metadata.plans import write_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Operation, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from coordinator.api import ClusterImage, PartitionState, TopicInfo
    from coordinator.controller.recovery import Recovery

    Elect = Callable[[PartitionState, Electorate], PartitionState]
    IsSynced = Callable[[TopicInfo], bool]
    ElectorateOf = Callable[[TopicInfo, int, Electorate], Electorate]

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def to_fence(image: ClusterImage, alive: Collection[int]) -> list[Operation]:
    """The operations that fence brokers that are gone."""
    gone = (one for one in image.members.values() if one.state is not BrokerState.FENCED and one.broker_id not in alive)
    return [
        Put(paths.member(one.broker_id), encode_member(replace(one, state=BrokerState.FENCED)), one.version)
        for one in gone
    ]


def to_reconcile(
    image: ClusterImage,
    since: ClusterImage | None = None,
    is_synced: IsSynced = lambda _: True,
    recovery: Recovery | None = None,
    now_s: float = 0.0,
) -> list[Operation]:
    """The partitions that are to have another state; partitions without a leader come first.

    All was reconciled in the image `since`, if one is given. `is_synced`: whether acknowledged records of a topic
    outlive a power cut. `recovery`: elections that wait for restarted replicas, and go on although the image is the
    same.
    """
    waiting: Collection[bytes] = ()
    if recovery is not None:
        recovery.prune(image)
        waiting = recovery.topic_ids

    def electorate_of(topic: TopicInfo, number: int, electorate: Electorate) -> Electorate:
        return electorate if recovery is None else recovery.electorate(topic, number, electorate, now_s)

    is_as_before = since is not None and _election_inputs(since) == _election_inputs(image)
    known = since.topics_by_id if since is not None and is_as_before else {}
    changed = [
        one for one in image.topics_by_id.values() if known.get(one.topic_id) is not one or one.topic_id in waiting
    ]
    moved = [
        one for topic in changed for one in _moved(image, topic, _settled_as(image, topic, is_synced), electorate_of)
    ]
    return [put for is_led_on in (False, True) for put, stays in moved if stays == is_led_on]


def to_prefer(image: ClusterImage) -> list[Operation]:
    """The elections of preferred replicas that can lead again."""
    return [put for topic in image.topics_by_id.values() for put, _ in _moved(image, topic, elections.preferred)]


def has_leaderships_to_hand_over(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker that leaves still leads a partition that another member of the ISR can lead."""
    serving = others_serving(image, broker_id)
    states = (state for topic in image.topics_by_id.values() for state in topic.partitions)
    return any(state.leader == broker_id and not serving.isdisjoint(state.isr) for state in states)


def others_serving(image: ClusterImage, broker_id: int) -> set[int]:
    """The other brokers that can lead."""
    return {one.broker_id for one in image.members.values() if one.state is BrokerState.SERVING} - {broker_id}


def _election_inputs(image: ClusterImage) -> object:
    """The part of the image on which elections depend besides the partition and its topic."""
    return image.members, image.broker_configs.get(CLUSTER_DEFAULT)


def _settled_as(image: ClusterImage, topic: TopicInfo, is_synced: IsSynced) -> Elect:
    if setting(image, topic, UNCLEAN) == "true":
        return elections.unclean
    return elections.settled if is_synced(topic) else _reconciled


def _reconciled(state: PartitionState, electorate: Electorate) -> PartitionState:
    return elections.reconciled(elections.settled(state, electorate), electorate)


def _moved(
    image: ClusterImage,
    topic: TopicInfo,
    elect: Elect,
    electorate_of: ElectorateOf = lambda _topic, _number, electorate: electorate,
) -> Iterator[tuple[Operation, bool]]:
    """The partitions to which an election gives another state, with whether the leader stays."""
    electorate = Electorate(image.members, min_isr(image, topic))
    for number, state in enumerate(topic.partitions):
        elected = (elections.recounted if state.recount else elect)(state, electorate_of(topic, number, electorate))
        if elected is not state and elected != state:  # else an unchanged state would be written for ever
            yield write_partition(topic.topic_id, number, elected), elected.leader_epoch == state.leader_epoch


def min_isr(image: ClusterImage, topic: TopicInfo) -> int:
    """The topic's min.insync.replicas: the metadata of a cluster have it, else it is 1."""
    return int(setting(image, topic, MIN_ISR) or 1)


def setting(image: ClusterImage, topic: TopicInfo, key: str) -> str | None:
    """The config of the topic, else the one of all brokers."""
    return topic.configs.get(key) or image.broker_configs.get(CLUSTER_DEFAULT, {}).get(key)
