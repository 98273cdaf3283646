"""The decision about a log that a start finds: keep, delete, move or set aside, by the metadata. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.log_dirs.strays import Fate

if TYPE_CHECKING:
    from collections.abc import Collection

    from coordinator.api import ClusterImage


def decide_fate(image: ClusterImage, broker_id: int, deleted: Collection[bytes], topic_id: bytes, number: int) -> Fate:
    """The fate of the log of a partition on this broker. `deleted`: ids of topics that a change has deleted.

    If its topic has fewer partitions, the partition may be about to be created. If the rollback of the metadata store
    was accepted, the metadata may lack the assignment of the replica to this broker (RULES M7).
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return Fate.DELETED if topic_id in deleted else Fate.UNNAMED
    if number >= len(topic.partitions) or broker_id in topic.partitions[number].replicas:
        return Fate.NAMED
    return Fate.UNNAMED if image.history.keeps_strays else Fate.MOVED
