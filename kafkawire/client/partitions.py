"""A partition by topic name and number."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Partitions grouped by topic, sorted."""
    return [
        (topic, list(topic_partitions))
        for topic, topic_partitions in groupby(sorted(partitions), lambda one: one.topic)
    ]
