"""Positions in topics from the progress of a micro-batch: the next offset to read of each partition.

An end offset is text in a format of its source. End offsets of topics are recognized by their source: the kafka source
by its description, this project's source by the topic ids, which no other source writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_connectors.offsets import MalformedOffsets, Offsets
from spark_connectors.wire import TopicPartition

Positions = Mapping[TopicPartition, int]
_STOCK: Final = "Kafka"  # KafkaV2[Subscribe[events]], KafkaSourceV1[…]


class SourceEnd(NamedTuple):
    """A source of a query and its end offset in a micro-batch, both as Spark reports them."""

    description: str
    end_offset: str


def positions_of(sources: Iterable[SourceEnd]) -> dict[TopicPartition, int]:
    """Positions of all partitions that a query reads. Other sources are left out."""
    return lowest(_of_source(one) for one in sources)


def lowest(several: Iterable[Positions]) -> dict[TopicPartition, int]:
    """The lowest offset of each partition, which shows the lag of its slowest reader."""
    found: dict[TopicPartition, int] = {}
    for positions in several:
        for place, offset in positions.items():
            found[place] = min(offset, found.get(place, offset))
    return found


def _of_source(source: SourceEnd) -> Positions:
    try:
        offsets = Offsets.from_json(json.loads(source.end_offset))
    except (json.JSONDecodeError, MalformedOffsets):
        return {}
    is_ours = bool(offsets.ids)
    return offsets.positions if is_ours or source.description.startswith(_STOCK) else {}
