"""What becomes of a log that a start finds, by the metadata. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.log_dirs.strays import Fate

if TYPE_CHECKING:
    from collections.abc import Collection

    from coordinator.api import ClusterImage


def fate(image: ClusterImage, broker_id: int, deleted: Collection[bytes], topic_id: bytes, number: int) -> Fate:
    """Of a partition of this broker. `deleted`: topics that a change has deleted.

    A partition that its topic does not have yet may be about to be made. Metadata whose rollback was accepted may not
    know that a replica came here (RULES M7).
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return Fate.DELETED if topic_id in deleted else Fate.UNNAMED
    if number >= len(topic.partitions) or broker_id in topic.partitions[number].replicas:
        return Fate.NAMED
    return Fate.UNNAMED if image.history.keeps_strays else Fate.MOVED
